/* Products with binary matrices, for `products.py`, and with sparse ones, for `sparse.py`; autoregressive units, drawn one
   after another, for `layers.py`.

   Compiled for the processor at hand by `kernels.py`, and called by XLA through its foreign function interface. Matrices
   are stored row after row. With binary ones no branch depends on single values: where some are on and some are not, a
   processor guesses wrong too often. */

#include <sched.h>
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

#ifdef __AVX512F__
enum { LANES = 16 }; /* of a vector; `products.py` asks for no sums of fewer columns */
#else
enum { LANES = 8 };
#endif
enum { WIDEST = 10 }; /* vectors of a strip of columns, whose sums stay in registers */
enum { BLOCK = 64 };  /* rows of a table, of which a strip stays in the nearest cache */
enum { ROWS = 512 };  /* of the result, of which a strip stays in the next one */
enum { OFTEN = 3 };   /* times that a row of a table is added, from which on a copy of it pays */
enum { SPLIT = 128 }; /* columns that are searched at a time */
enum { DRAWN = 8 };   /* cases that are drawn at a time */
enum { MANY_VALUES = 1 << 16, MANY_SUMS = 1 << 20 }; /* from which on several threads pay */
typedef float vector __attribute__((vector_size(4 * LANES), aligned(4)));
typedef float aligned_vector __attribute__((vector_size(4 * LANES)));

static int64_t parts_of(int64_t length, int64_t size) { return (length + size - 1) / size; }
static int64_t blocks_of(int64_t rows) { return parts_of(rows, BLOCK); }

/* Some work in parts, which are done in any order by whoever comes first: the thread that has it to do, and those of XLA's
   that are free. The former waits for no part that nobody has begun, so that it never waits in vain. */
typedef void Part(const void *work, int64_t part);
typedef struct {
    Part *part;
    const void *work; /* of no use once all parts are taken */
    int64_t parts, taken, done, holders;
} Job;

static void take_parts(Job *job) {
    int64_t part;
    while ((part = __atomic_fetch_add(&job->taken, 1, __ATOMIC_ACQ_REL)) < job->parts) {
        job->part(job->work, part);
        __atomic_fetch_add(&job->done, 1, __ATOMIC_ACQ_REL);
    }
}

static void let_go(Job *job) {
    if (__atomic_sub_fetch(&job->holders, 1, __ATOMIC_ACQ_REL) == 0) free(job);
}

static void help(void *job) {
    take_parts(job);
    let_go(job);
}

static int succeeded(const XLA_FFI_Api *api, XLA_FFI_Error *error) {
    if (!error) return 1;
    XLA_FFI_Error_Destroy_Args destroy = {XLA_FFI_Error_Destroy_Args_STRUCT_SIZE, NULL, error};
    api->XLA_FFI_Error_Destroy(&destroy);
    return 0;
}

/* XLA's threads, one per core that the process may use. They are there even where XLA's own products use only one, as with
   `--xla_cpu_multi_thread_eigen=false` on the command line. */
static int64_t threads_of(const XLA_FFI_CallFrame *call) {
    int64_t threads = 1;
    XLA_FFI_ThreadPool_NumThreads_Args ask = {XLA_FFI_ThreadPool_NumThreads_Args_STRUCT_SIZE, NULL, call->ctx, &threads};
    return succeeded(call->api, call->api->XLA_FFI_ThreadPool_NumThreads(&ask)) && threads > 1 ? threads : 1;
}

static void in_parts(const XLA_FFI_CallFrame *call, int64_t threads, Part *part, const void *work, int64_t parts) {
    int64_t helpers = (threads < parts ? threads : parts) - 1;
    Job *job = helpers > 0 ? malloc(sizeof(Job)) : NULL;
    if (!job) {
        for (int64_t k = 0; k < parts; k++) part(work, k);
        return;
    }
    *job = (Job){part, work, parts, 0, 0, helpers + 1};
    for (int64_t k = 0; k < helpers; k++) {
        XLA_FFI_ThreadPool_Schedule_Args ask = {XLA_FFI_ThreadPool_Schedule_Args_STRUCT_SIZE, NULL, call->ctx, help, job};
        if (!succeeded(call->api, call->api->XLA_FFI_ThreadPool_Schedule(&ask))) let_go(job);
    }
    take_parts(job);
    while (__atomic_load_n(&job->done, __ATOMIC_ACQUIRE) < parts) sched_yield(); /* the last ones are nearly done */
    let_go(job);
}

#ifndef __AVX512VBMI2__
/* The places, 0 to 7, of the bits of every byte, as eight bytes of which the first `ones[byte]` count. */
static uint64_t places[256];
static uint8_t ones[256];
__attribute__((constructor)) static void fill_places(void) {
    for (int byte = 0; byte < 256; byte++)
        for (int bit = 0; bit < 8; bit++)
            if (byte >> bit & 1) places[byte] |= (uint64_t)bit << 8 * ones[byte]++;
}
#endif

/* Append the places of the bits; returns the new length. Up to 64 bytes after it are overwritten. */
INLINE int32_t append(uint8_t *list, int32_t length, uint64_t bits) {
#ifdef __AVX512VBMI2__
    static const uint8_t all[64] = {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21,
                                    22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43,
                                    44, 45, 46, 47, 48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63};
    _mm512_storeu_si512(list + length, _mm512_maskz_compress_epi8(bits, _mm512_loadu_si512(all)));
    return length + __builtin_popcountll(bits);
#else
    for (int from = 0; from < 64; from += 8) {
        unsigned byte = bits >> from & 255;
        uint64_t own = places[byte] + from * UINT64_C(0x0101010101010101);
        memcpy(list + length, &own, 8);
        length += ones[byte];
    }
    return length;
#endif
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

/* A bit for each of the values. */
INLINE unsigned bits_of(mask on) {
#ifdef __AVX512F__
    return _mm512_cmplt_epi32_mask((__m512i)on, _mm512_setzero_si512());
#elif defined __AVX2__
    return (unsigned)_mm256_movemask_ps((__m256)on);
#else
    unsigned bits = 0;
    for (int k = 0; k < LANES; k++) bits |= (unsigned)(on[k] & 1) << k;
    return bits;
#endif
}

/* Where blocks of 64 bits are on: the places within each block, and where those of each begin. */
static void list_ones(const uint64_t *bits, int64_t blocks, int32_t *begin, uint8_t *list) {
    int32_t found = 0;
    for (int64_t block = 0; block < blocks; block++) {
        begin[block] = found;
        found = append(list, found, bits[block]);
    }
    begin[blocks] = found;
}

/* x = base + step * b, b binary, `base` and `step` of a column each; b as bits by rows and by columns, in blocks of 64.

   The lists of rows hold, for each row and each block of 64 columns, the columns within the block where b is 1; they begin
   at `row_begin[row * blocks + block]`. The same by columns, in blocks of rows. */
typedef struct {
    const float *x;
    int64_t rows, columns;
    float *base, *step;
    int32_t *row_begin, *column_begin;
    uint8_t *row_list, *column_list;
    uint64_t *by_rows, *by_columns; /* zero at first */
    int *other;                     /* whether x is not such a matrix */
} Search;

/* One part of the columns. */
static void split(const void *work, int64_t part) {
    const Search *s = work;
    int64_t rows = s->rows, columns = s->columns, last = (part + 1) * SPLIT < columns ? (part + 1) * SPLIT : columns;
    for (int64_t j = part * SPLIT; j < last; j += LANES) {
        int64_t left = last - j < LANES ? last - j : LANES;
        vector first = base_of(values_at(s->x + j, left));
        mask down = (mask)(first > 0);
        vector steps = chosen(down, (vector){0} - 1, (vector){0} + 1);
        memcpy(s->base + j, &first, left * sizeof(float));
        memcpy(s->step + j, &steps, left * sizeof(float));
        mask other = ~((mask)(first >= -0.5f) & (mask)(first <= 0.5f)); /* whether a value is neither of the two */
        for (int64_t i = 0; i < rows; i += 32) {
            mask some = {0}; /* of 32 rows, a bit each */
            for (int64_t k = 0; k < 32 && i + k < rows; k++) {
                vector value = values_at(s->x + (i + k) * columns + j, left);
                mask one = ones_of(value);
                other |= (mask)(base_of(value) != first) | (one & ((mask)(value < 0) ^ down));
                some |= one & (int32_t)(UINT32_C(1) << k);
                s->by_rows[(i + k) * blocks_of(columns) + j / BLOCK] |= (uint64_t)bits_of(one) << j % BLOCK;
            }
            for (int64_t k = 0; k < left; k++)
                s->by_columns[(j + k) * blocks_of(rows) + i / BLOCK] |= (uint64_t)(uint32_t)some[k] << i % BLOCK;
        }
        if (bits_of(other)) __atomic_store_n(s->other, 1, __ATOMIC_RELAXED);
        if (__atomic_load_n(s->other, __ATOMIC_RELAXED)) return;
    }
}

static void list(const void *work, int64_t part) {
    const Search *s = work;
    if (part == 0)
        list_ones(s->by_rows, s->rows * blocks_of(s->columns), s->row_begin, s->row_list);
    else
        list_ones(s->by_columns, s->columns * blocks_of(s->rows), s->column_begin, s->column_list);
}

/* Whether x is such a matrix, and at most five eighths of b are 1; with more ones, a product of dense matrices is faster. */
static int find_entries(const XLA_FFI_CallFrame *call, Search *s) {
    int64_t row_blocks = s->rows * blocks_of(s->columns), column_blocks = s->columns * blocks_of(s->rows);
    int other = 0;
    if (!(s->by_rows = calloc(row_blocks + column_blocks, sizeof(uint64_t)))) return 0;
    s->by_columns = s->by_rows + row_blocks;
    s->other = &other;
    int64_t threads = s->rows * s->columns < MANY_VALUES ? 1 : threads_of(call);
    in_parts(call, threads, split, s, parts_of(s->columns, SPLIT));
    if (!other) in_parts(call, threads, list, s, 2);
    free(s->by_rows);
    return !other && s->row_begin[row_blocks] <= s->rows * s->columns / 8 * 5;
}

/* What `add_rows` is given: out[r] = scale[r] * sum_t weight[t] table[t] + after[r] * sum before[t] table[t], the second
   sum over the rows t of the table that are listed for r. */
typedef struct {
    const int32_t *begin;
    const uint8_t *list;
    const float *table, *before, *after, *weight, *scale;
    float *out;
    int64_t rows, table_rows, width;
    int64_t vectors, strips; /* of columns; strips are of some vectors each */
    int centred, copied;     /* as `add_strip` has them */
} Sums;

static int any(const float *values, int64_t count) {
    for (int64_t k = 0; k < count; k++)
        if (values[k] != 0) return 1;
    return 0;
}

/* Some rows of `out`, and as many vectors of each as are `wide`: one block of the table after another. The last of the
   vectors begins `end` columns after the first, and may overlap the one before it. With `centred` there is a first sum;
   with `copied` a block's strip is first put side by side, where it is aligned and no two rows share a place of a cache. */
INLINE void add_strip(const int wide, const int centred, const int copied, const Sums *a, int64_t first, int64_t last,
                      int64_t from, int64_t end) {
#define AT(v) (v == wide - 1 ? end : v * LANES)
    int64_t blocks = blocks_of(a->table_rows);
    aligned_vector near[BLOCK * WIDEST];
    vector common[WIDEST], total[WIDEST];
    UNROLLED for (int v = 0; v < wide; v++) common[v] = (vector){0};
    for (int64_t block = 0; block < blocks; block++) {
        int64_t start = block * BLOCK, rows = a->table_rows - start < BLOCK ? a->table_rows - start : BLOCK;
        const float *table = a->table + start * a->width + from, *before = a->before + start;
        if (centred || copied)
            for (int64_t t = 0; t < rows; t++)
                UNROLLED for (int v = 0; v < wide; v++) {
                    vector value = *(const vector *)(table + t * a->width + AT(v));
                    if (centred) common[v] += a->weight[start + t] * value;
                    if (copied) near[t * wide + v] = before[t] * value;
                }
        for (int64_t r = first; r < last; r++) {
            float *out = a->out + r * a->width + from;
            UNROLLED for (int v = 0; v < wide; v++)
                total[v] = block ? *(const vector *)(out + AT(v)) : (vector){0};
            for (int32_t k = a->begin[r * blocks + block]; k < a->begin[r * blocks + block + 1]; k++) {
                int64_t t = a->list[k];
                UNROLLED for (int v = 0; v < wide; v++)
                    total[v] += copied ? near[t * wide + v] : before[t] * *(const vector *)(table + t * a->width + AT(v));
            }
            if (block == blocks - 1)
                UNROLLED for (int v = 0; v < wide; v++)
                    total[v] = a->after[r] * total[v] + (centred ? a->scale[r] * common[v] : (vector){0});
            UNROLLED for (int v = 0; v < wide; v++) *(vector *)(out + AT(v)) = total[v];
        }
    }
}

static void add_vectors(int64_t wide, int centred, int copied, const Sums *a, int64_t first, int64_t last, int64_t from,
                        int64_t end) {
#define STRIP(n, centred, copied) add_strip(n, centred, copied, a, first, last, from, end)
#define WIDE(n) \
    case n: \
        if (centred && copied) STRIP(n, 1, 1); \
        else if (centred) STRIP(n, 1, 0); \
        else if (copied) STRIP(n, 0, 1); \
        else STRIP(n, 0, 0); \
        return;
    switch (wide) {
        WIDE(1) WIDE(2) WIDE(3) WIDE(4) WIDE(5) WIDE(6) WIDE(7) WIDE(8) WIDE(9) WIDE(10)
        default: abort(); /* WIDEST is 10 */
    }
}

/* One strip of columns. */
static void add_part(const void *work, int64_t strip) {
    const Sums *a = work;
    int64_t from = a->vectors * strip / a->strips * LANES, to = a->vectors * (strip + 1) / a->strips * LANES;
    int64_t end = (to < a->width ? to : a->width) - LANES - from;
    for (int64_t first = 0; first < a->rows; first += ROWS) {
        int64_t last = first + ROWS < a->rows ? first + ROWS : a->rows;
        add_vectors((to - from) / LANES, a->centred, a->copied, a, first, last, from, end);
    }
}

static void add_rows(const XLA_FFI_CallFrame *call, Sums *a) {
    int64_t added = a->begin[a->rows * blocks_of(a->table_rows)];
    int64_t threads = added * a->width < MANY_SUMS ? 1 : threads_of(call);
    a->vectors = parts_of(a->width, LANES);
    int64_t fewest = parts_of(a->vectors, WIDEST), most = a->vectors / 2; /* shared among threads, of two at least */
    a->strips = parts_of(fewest, threads) * threads;                      /* as many for each */
    if (a->strips > most) a->strips = most > fewest ? most : fewest;
    a->centred = any(a->weight, a->table_rows) && any(a->scale, a->rows);
    a->copied = added >= OFTEN * a->table_rows;
    in_parts(call, threads, add_part, a, a->strips);
}

/* Minibatches of sparse rows, `SparseCases`: case i has the entries from begin[i] up to end[i] of those of all the data. */
typedef struct {
    const int32_t *begin, *end;
    const XLA_FFI_Buffer *values, *columns;
    int64_t cases, stored;
} Entries;

/* Of the types that `sparse.py` lets through. */
INLINE float value_at(const Entries *e, int64_t k) {
    switch (e->values->dtype) {
        case XLA_FFI_DataType_U8: return ((const uint8_t *)e->values->data)[k];
        case XLA_FFI_DataType_U16: return ((const uint16_t *)e->values->data)[k];
        default: return ((const float *)e->values->data)[k];
    }
}

INLINE int64_t column_at(const Entries *e, int64_t k) {
    return e->columns->dtype == XLA_FFI_DataType_U16 ? ((const uint16_t *)e->columns->data)[k]
                                                     : ((const int32_t *)e->columns->data)[k];
}

/* For every entry of case i, its place k among those of all the data, and its column j; none is out of bounds. */
#define FOR_ENTRIES(e, i, width, k, j) \
    for (int64_t k = (e)->begin[i] < 0 ? 0 : (e)->begin[i], j; k < (e)->end[i] && k < (e)->stored; k++) \
        if ((j = column_at(e, k)) >= 0 && j < (width))

/* out += factor row */
INLINE void add_row(float *restrict out, float factor, const float *restrict row, int64_t width) {
    for (int64_t c = 0; c < width; c++) out[c] += factor * row[c];
}

/* out = x table */
static void sparse_product(const Entries *e, const float *table, float *out, int64_t columns, int64_t width) {
    memset(out, 0, e->cases * width * sizeof(float));
    for (int64_t i = 0; i < e->cases; i++)
        FOR_ENTRIES(e, i, columns, k, j) add_row(out + i * width, value_at(e, k), table + j * width, width);
}

/* out += x' delta */
static void add_sparse_transposed(const Entries *e, const float *delta, float *out, int64_t columns, int64_t width) {
    for (int64_t i = 0; i < e->cases; i++)
        FOR_ENTRIES(e, i, columns, k, j) add_row(out + j * width, value_at(e, k), delta + i * width, width);
}

/* out[r] = sum_j x[r, j] other[r, j], where the cases of x are there as many times over as there are rows. */
static void sparse_inner(const Entries *e, const float *other, float *out, int64_t rows, int64_t columns) {
    for (int64_t r = 0; r < rows; r++) {
        out[r] = 0;
        FOR_ENTRIES(e, r % e->cases, columns, k, j) out[r] += value_at(e, k) * other[r * columns + j];
    }
}

/* out[r, j] = x[r, j] delta[r] */
static void sparse_outer(const Entries *e, const float *delta, float *out, int64_t rows, int64_t columns) {
    memset(out, 0, rows * columns * sizeof(float));
    for (int64_t r = 0; r < rows; r++)
        FOR_ENTRIES(e, r % e->cases, columns, k, j) out[r * columns + j] += value_at(e, k) * delta[r];
}

/* v_j = 1 where margin_j + sum over k < j of v_k within_kj is positive, for each case, unit after unit. */
typedef struct {
    const float *margin, *within;
    float *value;
    int64_t cases, units;
} Draw;

static void draw_part(const void *work, int64_t part) {
    const Draw *d = work;
    int64_t units = d->units, last = (part + 1) * DRAWN < d->cases ? (part + 1) * DRAWN : d->cases;
    for (int64_t i = part * DRAWN; i < last; i++) {
        float *value = d->value + i * units; /* first what decides it */
        memcpy(value, d->margin + i * units, units * sizeof(float));
        for (int64_t j = 0; j < units; j++) {
            int on = value[j] > 0;
            value[j] = on;
            if (on) add_row(value + j + 1, 1, d->within + j * units + j + 1, units - j - 1);
        }
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
    Search search = {.x = x->data, .rows = x->dims[0], .columns = x->dims[1], .base = RESULT(1)->data,
                     .step = RESULT(2)->data, .row_begin = RESULT(3)->data, .row_list = RESULT(4)->data,
                     .column_begin = RESULT(5)->data, .column_list = RESULT(6)->data};
    *(uint8_t *)RESULT(0)->data = (uint8_t)find_entries(call, &search);
    return NULL;
}

/* (begin, list, table, before, after, weight, scale) -> out */
XLA_FFI_Error *nvil_add_rows(XLA_FFI_CallFrame *call) {
    if (asked_for_version(call)) return NULL;
    XLA_FFI_Buffer *table = ARGUMENT(2), *out = RESULT(0);
    Sums sums = {.begin = ARGUMENT(0)->data, .list = ARGUMENT(1)->data, .table = table->data,
                 .before = ARGUMENT(3)->data, .after = ARGUMENT(4)->data, .weight = ARGUMENT(5)->data,
                 .scale = ARGUMENT(6)->data, .out = out->data, .rows = out->dims[0], .table_rows = table->dims[0],
                 .width = table->dims[1]};
    add_rows(call, &sums);
    return NULL;
}

static Entries entries_of(XLA_FFI_CallFrame *call) {
    XLA_FFI_Buffer *begin = ARGUMENT(0), *values = ARGUMENT(2), *columns = ARGUMENT(3);
    int64_t stored = values->dims[0] < columns->dims[0] ? values->dims[0] : columns->dims[0];
    return (Entries){begin->data, ARGUMENT(1)->data, values, columns, begin->dims[0], stored};
}

/* (begin, end, values, columns, table) -> out */
XLA_FFI_Error *nvil_sparse_product(XLA_FFI_CallFrame *call) {
    if (asked_for_version(call)) return NULL;
    Entries entries = entries_of(call);
    XLA_FFI_Buffer *table = ARGUMENT(4);
    sparse_product(&entries, table->data, RESULT(0)->data, table->dims[0], table->dims[1]);
    return NULL;
}

/* (begin, end, values, columns, delta, out) -> out, in the same place */
XLA_FFI_Error *nvil_add_sparse_transposed(XLA_FFI_CallFrame *call) {
    if (asked_for_version(call)) return NULL;
    Entries entries = entries_of(call);
    XLA_FFI_Buffer *out = RESULT(0);
    if (out->data != ARGUMENT(5)->data)
        memcpy(out->data, ARGUMENT(5)->data, out->dims[0] * out->dims[1] * sizeof(float));
    add_sparse_transposed(&entries, ARGUMENT(4)->data, out->data, out->dims[0], out->dims[1]);
    return NULL;
}

/* (begin, end, values, columns, other) -> out */
XLA_FFI_Error *nvil_sparse_inner(XLA_FFI_CallFrame *call) {
    if (asked_for_version(call)) return NULL;
    Entries entries = entries_of(call);
    XLA_FFI_Buffer *other = ARGUMENT(4);
    sparse_inner(&entries, other->data, RESULT(0)->data, other->dims[0], other->dims[1]);
    return NULL;
}

/* (begin, end, values, columns, delta) -> out */
XLA_FFI_Error *nvil_sparse_outer(XLA_FFI_CallFrame *call) {
    if (asked_for_version(call)) return NULL;
    Entries entries = entries_of(call);
    XLA_FFI_Buffer *out = RESULT(0);
    sparse_outer(&entries, ARGUMENT(4)->data, out->data, out->dims[0], out->dims[1]);
    return NULL;
}

/* (margin, within) -> value */
XLA_FFI_Error *nvil_draw_in_order(XLA_FFI_CallFrame *call) {
    if (asked_for_version(call)) return NULL;
    XLA_FFI_Buffer *margin = ARGUMENT(0);
    Draw draw = {margin->data, ARGUMENT(1)->data, RESULT(0)->data, margin->dims[0], margin->dims[1]};
    int64_t threads = draw.cases * draw.units * draw.units < MANY_SUMS ? 1 : threads_of(call);
    in_parts(call, threads, draw_part, &draw, parts_of(draw.cases, DRAWN));
    return NULL;
}
