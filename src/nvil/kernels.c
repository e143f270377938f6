/* Products with binary matrices, for `products.py`.

   Compiled for the processor at hand by `kernels.py`, and called by XLA through its foreign function
   interface. Arrays are dense, row after row. Nothing here has a branch that depends on single values of the data: where
   a seventh of them are on, a processor would guess wrong too often. */

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#ifdef __AVX2__
#include <immintrin.h>
#endif

#include "xla/ffi/api/c_api.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "lists are written eight bytes at a time, the lowest first"
#endif
#ifdef __clang__
#define UNROLLED _Pragma("clang loop unroll(full)")
#else
#define UNROLLED _Pragma("GCC unroll 16")
#endif
#define INLINE static inline __attribute__((always_inline))

enum { LANES = 8, WIDEST = 13 }; /* vectors of a strip of columns, whose sums stay in registers */
enum { BLOCK = 64 };             /* rows of a table, of which a strip stays in the nearest cache */
enum { ROWS = 512 };             /* of the result, of which a strip stays in the next one */
typedef float vector __attribute__((vector_size(4 * LANES), aligned(4)));

static int64_t blocks_of(int64_t rows) { return (rows + BLOCK - 1) / BLOCK; }

/* The places, 0 to 7, of the bits of every byte, as eight bytes of which the first `ones[byte]` count. */
static uint64_t places[256];
static uint8_t ones[256];
__attribute__((constructor)) static void fill_places(void) {
    for (int byte = 0; byte < 256; byte++)
        for (int bit = 0; bit < 8; bit++)
            if (byte >> bit & 1) places[byte] |= (uint64_t)bit << 8 * ones[byte]++;
}

/* Append the places of the bits, `from` on; returns the new length. Up to seven bytes after it are overwritten. */
INLINE int32_t append(uint8_t *list, int32_t length, unsigned byte, unsigned from) {
    uint64_t all = places[byte] + from * UINT64_C(0x0101010101010101);
    memcpy(list + length, &all, 8);
    return length + ones[byte];
}

/* Which of the next values, eight at most, differ from the base of their columns. */
INLINE unsigned differing(const float *x, const float *base, int64_t count) {
#ifdef __AVX2__
    if (count >= 8)
        return (unsigned)_mm256_movemask_ps(_mm256_cmp_ps(_mm256_loadu_ps(x), _mm256_loadu_ps(base), _CMP_NEQ_UQ));
#endif
    unsigned byte = 0;
    for (int k = 0; k < 8 && k < count; k++) byte |= (unsigned)(x[k] != base[k]) << k;
    return byte;
}

/* x = base + step * b, b binary and 0 in at least half of the rows of each column.

   `row_list` holds, for each row and each block of 64 columns, the columns within the block where b is 1; they begin at
   `row_begin[row * blocks + block]`. The same by columns, in blocks of rows. Returns whether x is such a matrix: none is
   whose columns have more than two values. */
static int find_entries(const float *x, int64_t rows, int64_t columns, float *base, float *step, int32_t *row_begin,
                        uint8_t *row_list, int32_t *column_begin, uint8_t *column_list) {
    int64_t bytes = (rows + 7) / 8;
    uint8_t *bits = calloc(bytes, columns); /* of eight rows in a byte, for every column */
    if (!bits) return 0;
    float *other = step;
    memcpy(base, x, columns * sizeof(float));
    memcpy(other, x, columns * sizeof(float));
    for (int64_t i = 1; i < rows; i++)
        for (int64_t j = 0; j < columns; j++) {
            float value = x[i * columns + j];
            base[j] = value < base[j] ? value : base[j];
            other[j] = value > other[j] ? value : other[j];
        }
    uint32_t more = 0; /* whether a column has more than two values */
    for (int64_t i = 0; i < rows && !more; i++)
        for (int64_t j = 0; j < columns; j++) {
            float value = x[i * columns + j];
            bits[i / 8 * columns + j] |= (uint8_t)((value != base[j]) << i % 8);
            more |= (value != base[j]) & (value != other[j]);
        }
    if (more) {
        free(bits);
        return 0;
    }

    int32_t found = 0, *begin = column_begin;
    unsigned last = 0xff >> (bytes * 8 - rows); /* the bits of the last byte that stand for a row */
    for (int64_t j = 0; j < columns; j++) {
        int64_t on = 0;
        for (int64_t byte = 0; byte < bytes; byte++) on += ones[bits[byte * columns + j]];
        unsigned flip = on * 2 > rows ? 0xff : 0;
        float least = base[j], largest = other[j];
        base[j] = flip ? largest : least;
        step[j] = flip ? least - largest : largest - least;
        for (int64_t byte = 0; byte < bytes; byte++) {
            if (byte % (BLOCK / 8) == 0) *begin++ = found;
            unsigned own = (bits[byte * columns + j] ^ flip) & (byte == bytes - 1 ? last : 0xff);
            found = append(column_list, found, own, byte % (BLOCK / 8) * 8);
        }
    }
    *begin = found;
    free(bits);

    found = 0;
    begin = row_begin;
    for (int64_t i = 0; i < rows; i++) {
        const float *row = x + i * columns;
        for (int64_t j = 0; j < columns; j += 8) {
            if (j % BLOCK == 0) *begin++ = found;
            found = append(row_list, found, differing(row + j, base + j, columns - j), j % BLOCK);
        }
    }
    *begin = found;
    return 1;
}

/* What `add_rows` is given: out[r] = scale[r] * sum_t weight[t] table[t] + after[r] * sum before[t] table[t], the second
   sum over the rows t of the table that are listed for r. */
typedef struct {
    const int32_t *begin;
    const uint8_t *list;
    const float *table, *before, *after, *weight, *scale;
    float *out;
    int64_t rows, table_rows, width;
} Sums;

/* Some rows of `out`, and as many vectors of each as are `wide`: one block of the table after another. */
INLINE void add_strip(const int wide, const Sums *a, int64_t first, int64_t last, int64_t from) {
    int64_t blocks = blocks_of(a->table_rows);
    vector common[WIDEST], total[WIDEST];
    UNROLLED for (int v = 0; v < wide; v++) common[v] = (vector){0};
    for (int64_t block = 0; block < blocks; block++) {
        int64_t start = block * BLOCK, rows = a->table_rows - start < BLOCK ? a->table_rows - start : BLOCK;
        const float *table = a->table + start * a->width + from, *before = a->before + start;
        for (int64_t t = 0; t < rows; t++)
            UNROLLED for (int v = 0; v < wide; v++)
                common[v] += a->weight[start + t] * *(const vector *)(table + t * a->width + v * LANES);
        for (int64_t r = first; r < last; r++) {
            float *out = a->out + r * a->width + from;
            UNROLLED for (int v = 0; v < wide; v++)
                total[v] = block ? *(const vector *)(out + v * LANES) : (vector){0};
            for (int32_t k = a->begin[r * blocks + block]; k < a->begin[r * blocks + block + 1]; k++) {
                const float *row = table + a->list[k] * a->width;
                UNROLLED for (int v = 0; v < wide; v++)
                    total[v] += before[a->list[k]] * *(const vector *)(row + v * LANES);
            }
            if (block == blocks - 1)
                UNROLLED for (int v = 0; v < wide; v++)
                    total[v] = a->after[r] * total[v] + a->scale[r] * common[v];
            UNROLLED for (int v = 0; v < wide; v++) *(vector *)(out + v * LANES) = total[v];
        }
    }
}

static void add_vectors(int64_t wide, const Sums *a, int64_t first, int64_t last, int64_t from) {
#define WIDE(n) case n: add_strip(n, a, first, last, from); return;
    switch (wide) {
        WIDE(1) WIDE(2) WIDE(3) WIDE(4) WIDE(5) WIDE(6) WIDE(7) WIDE(8) WIDE(9) WIDE(10) WIDE(11) WIDE(12) WIDE(13)
    }
}

static void add_rows(const Sums *a) {
    int64_t vectors = a->width / LANES, strips = (vectors + WIDEST - 1) / WIDEST;
    for (int64_t first = 0; first < a->rows; first += ROWS) {
        int64_t last = first + ROWS < a->rows ? first + ROWS : a->rows;
        for (int64_t s = 0; s < strips; s++) {
            int64_t from = vectors * s / strips, to = vectors * (s + 1) / strips;
            add_vectors(to - from, a, first, last, from * LANES);
        }
        /* Columns that do not fill a vector are the last of one; those before them are computed once more. */
        if (a->width % LANES) add_vectors(1, a, first, last, a->width - LANES);
    }
}

/* Whether XLA only asks for which version of its interface a function was compiled; then it is answered. */
static int asked_for_version(XLA_FFI_CallFrame *call) {
    XLA_FFI_Extension_Base *extension = call->extension_start;
    if (!extension || extension->type != XLA_FFI_Extension_Metadata) return 0;
    XLA_FFI_Metadata *answer = ((XLA_FFI_Metadata_Extension *)extension)->metadata;
    answer->api_version.major_version = XLA_FFI_API_MAJOR;
    answer->api_version.minor_version = XLA_FFI_API_MINOR;
    return 1;
}

#define ARGUMENT(i) ((XLA_FFI_Buffer *)call->args.args[i])
#define RESULT(i) ((XLA_FFI_Buffer *)call->rets.rets[i])

/* x -> (binary, base, step, row_begin, row_list, column_begin, column_list) */
XLA_FFI_Error *nvil_entries(XLA_FFI_CallFrame *call) {
    if (asked_for_version(call)) return NULL;
    XLA_FFI_Buffer *x = ARGUMENT(0);
    *(uint8_t *)RESULT(0)->data = (uint8_t)find_entries(
        x->data, x->dims[0], x->dims[1], RESULT(1)->data, RESULT(2)->data,
        RESULT(3)->data, RESULT(4)->data, RESULT(5)->data, RESULT(6)->data);
    return NULL;
}

/* (begin, list, table, before, after, weight, scale) -> (out) */
XLA_FFI_Error *nvil_add_rows(XLA_FFI_CallFrame *call) {
    if (asked_for_version(call)) return NULL;
    XLA_FFI_Buffer *table = ARGUMENT(2), *out = RESULT(0);
    Sums sums = {ARGUMENT(0)->data, ARGUMENT(1)->data, table->data,   ARGUMENT(3)->data, ARGUMENT(4)->data,
                 ARGUMENT(5)->data, ARGUMENT(6)->data, out->data,     out->dims[0],      table->dims[0],
                 table->dims[1]};
    add_rows(&sums);
    return NULL;
}
