/* Products with binary matrices, for `products.py`.

   Compiled for the processor at hand by `kernels.py`, and called by XLA through its foreign function interface. Arrays
   are dense, row after row. No branch depends on single values of the data: where some are on and some are not, a
   processor guesses wrong too often. */

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

/* Append the places of the bits, `from` on; returns the new length. Up to eight bytes after it are overwritten. */
INLINE int32_t append(uint8_t *list, int32_t length, unsigned byte, unsigned from) {
    uint64_t all = places[byte] + from * UINT64_C(0x0101010101010101);
    memcpy(list + length, &all, 8);
    return length + ones[byte];
}

typedef int32_t mask __attribute__((vector_size(4 * LANES), aligned(4)));

INLINE vector chosen(mask where, vector yes, vector no) { return (vector)((where & (mask)yes) | (~where & (mask)no)); }

/* Values are m, nearer to zero, or one more or less. Which of them a value is, and m, follow from the value alone, so
   that a case has the same product in any company. With c the centre of a bit, m = -c or m = 1 - c; the first is rounded
   as 1 - c is, so that both values of the bit give the same m. */
INLINE mask ones_of(vector x) { return (mask)(x >= 0.5f) | (mask)(x < -0.5f); }

INLINE vector base_of(vector x) {
    mask above = (mask)(x > 0);
    return chosen(ones_of(x), chosen(above, x - 1, x + 1), chosen(above, x, (1 + x) - 1));
}

/* The next values of a row, zeros after its end. */
INLINE vector values_at(const float *x, int64_t left) {
    if (left >= LANES) return *(const vector *)x;
    float some[LANES] = {0};
    memcpy(some, x, left * sizeof(float));
    return *(vector *)some;
}

/* A bit for each of eight values. */
INLINE unsigned bits_of(mask on) {
#ifdef __AVX2__
    return (unsigned)_mm256_movemask_ps((__m256)on);
#else
    unsigned byte = 0;
    for (int k = 0; k < LANES; k++) byte |= (unsigned)(on[k] & 1) << k;
    return byte;
#endif
}

/* x = base + step * b, b binary, `base` and `step` of a column each.

   `row_list` holds, for each row and each block of 64 columns, the columns within the block where b is 1; they begin at
   `row_begin[row * blocks + block]`. The same by columns, in blocks of rows. Returns whether x is such a matrix, and
   at most three quarters of b are 1; with more ones, a product of dense matrices is faster. */
static int find_entries(const float *x, int64_t rows, int64_t columns, float *base, float *step, int32_t *row_begin,
                        uint8_t *row_list, int32_t *column_begin, uint8_t *column_list) {
    int64_t bytes = (rows + 7) / 8;
    uint8_t *bits = malloc(bytes * columns); /* of eight rows in a byte, for every column */
    if (!bits) return 0;
    mask other = {0}; /* whether a value is neither of the two of its column */
    for (int64_t j = 0; j < columns; j += LANES) {
        int64_t left = columns - j < LANES ? columns - j : LANES;
        vector first = base_of(values_at(x + j, left));
        mask down = (mask)(first > 0);
        vector steps = chosen(down, (vector){0} - 1, (vector){0} + 1);
        memcpy(base + j, &first, left * sizeof(float));
        memcpy(step + j, &steps, left * sizeof(float));
        other |= ~((mask)(first >= -0.5f) & (mask)(first <= 0.5f));
        for (int64_t byte = 0; byte < bytes; byte++) {
            mask eight = {0};
            for (int64_t k = 0; k < 8 && byte * 8 + k < rows; k++) {
                vector value = values_at(x + (byte * 8 + k) * columns + j, left);
                mask one = ones_of(value);
                other |= (mask)(base_of(value) != first) | (one & ((mask)(value < 0) ^ down));
                eight |= one & (1 << k);
            }
            for (int64_t k = 0; k < left; k++) bits[byte * columns + j + k] = (uint8_t)eight[k];
        }
        if (bits_of(other)) break;
    }
    if (bits_of(other)) {
        free(bits);
        return 0;
    }

    int32_t found = 0, most = (int32_t)(rows * columns / 4 * 3), *begin = column_begin;
    for (int64_t j = 0; j < columns; j++) {
        for (int64_t byte = 0; byte < bytes; byte++) {
            if (byte % (BLOCK / 8) == 0) *begin++ = found;
            found = append(column_list, found, bits[byte * columns + j], byte % (BLOCK / 8) * 8);
        }
    }
    free(bits);
    if (found > most) return 0;
    *begin = found;

    found = 0;
    begin = row_begin;
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j += 8) {
            if (j % BLOCK == 0) *begin++ = found;
            vector values = values_at(x + i * columns + j, columns - j);
            found = append(row_list, found, bits_of(ones_of(values)), j % BLOCK);
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
        /* Columns that fill no vector are the last of one; those before them are computed once more. */
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
    *(uint8_t *)RESULT(0)->data =
        (uint8_t)find_entries(x->data, x->dims[0], x->dims[1], RESULT(1)->data, RESULT(2)->data, RESULT(3)->data,
                              RESULT(4)->data, RESULT(5)->data, RESULT(6)->data);
    return NULL;
}

/* (begin, list, table, before, after, weight, scale) -> out */
XLA_FFI_Error *nvil_add_rows(XLA_FFI_CallFrame *call) {
    if (asked_for_version(call)) return NULL;
    XLA_FFI_Buffer *table = ARGUMENT(2), *out = RESULT(0);
    Sums sums = {ARGUMENT(0)->data, ARGUMENT(1)->data, table->data, ARGUMENT(3)->data, ARGUMENT(4)->data,
                 ARGUMENT(5)->data, ARGUMENT(6)->data, out->data,   out->dims[0],      table->dims[0],
                 table->dims[1]};
    add_rows(&sums);
    return NULL;
}
