/* Reports on rows of codes in one pass, and sums by pair of codes.
 *
 * What row_products.py and curvature_sum.py do with NumPy and scipy, with temporary arrays that stay
 * in the first cache. Sums by pair have the same bits as those of numpy.bincount; a report differs
 * by the last places of exp and log. Contraction of a*b+c is switched off where this is compiled, so
 * that results do not depend on which instructions a processor has.
 *
 * Only the limited API is used: one module for every Python from 3.11 on. Types and lengths of
 * buffers, codes and features are checked here: nothing outside the buffers is read or written,
 * unless somebody else writes to them meanwhile.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <float.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#if defined(__FAST_MATH__) || FLT_EVAL_METHOD != 0 || PY_SSIZE_T_MAX < INT64_MAX
#error "exp needs doubles that are rounded as written, and sizes need 64 bits"
#endif

#define INTERFACE 2 /* as in compiled.py: raised whenever what a function takes changes */
#define MOST ((Py_ssize_t)1 << 29) /* of any size: products of two, in bytes, do not overflow */
#define CHUNK 256 /* rows whose temporary arrays stay in the first cache */

#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && defined(__GLIBC__)
#define WIDE __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define WIDE
#endif

typedef struct {
    double power[CHUNK];  /* e^-|z| */
    double inverse[CHUNK]; /* 1 / (1 + e^-|z|) */
    double log[CHUNK];    /* log(1 + e^-|z|) */
} logistic;

/* e^-|s z| by 2^k e^r with |r| <= log(2) / 2 and Taylor's polynomial, off by less than 2e-16 of it;
 * and one over one plus it. Powers below 9e-308 are 9e-308: nothing beside what they are added to. */
WIDE static void powers(int n, const double *restrict z, double s, logistic *restrict out) {
    for (int i = 0; i < n; i++) {
        double x = -fabs(s * z[i]);
        x = x < -707.0 ? -707.0 : x;
        double shifted = x * 0x1.71547652b82fep0 + 0x1.8p52; /* rounds to whole numbers */
        double k = shifted - 0x1.8p52;
        double r = (x - k * 0x1.62e42fee00000p-1) - k * 0x1.a39ef35793c76p-33;
        double p = 1.0 / 6227020800.0;
        p = p * r + 1.0 / 479001600.0;
        p = p * r + 1.0 / 39916800.0;
        p = p * r + 1.0 / 3628800.0;
        p = p * r + 1.0 / 362880.0;
        p = p * r + 1.0 / 40320.0;
        p = p * r + 1.0 / 5040.0;
        p = p * r + 1.0 / 720.0;
        p = p * r + 1.0 / 120.0;
        p = p * r + 1.0 / 24.0;
        p = p * r + 1.0 / 6.0;
        p = p * r + 0.5;
        p = p * r * r + r + 1.0;
        uint64_t bits, whole;
        memcpy(&bits, &p, 8);
        memcpy(&whole, &shifted, 8);
        bits += whole << 52;
        memcpy(&p, &bits, 8);
        p = x == x ? p : x; /* what is not a number stays so */
        out->power[i] = p;
        out->inverse[i] = 1.0 / (1.0 + p);
    }
}

/* log(1 + e) = 2 atanh(e / (2 + e)) for e in [0, 1], halved where that makes the series shorter. */
WIDE static void logs(int n, logistic *restrict of) {
    for (int i = 0; i < n; i++) {
        double e = of->power[i];
        int large = e > 0.41421356237309503;
        double over = large ? 0.5 * (e - 1.0) : e; /* u - 1 for u = 1 + e or its half */
        double s = over / (2.0 + over), q = s * s;
        double p = 1.0 / 23.0;
        p = p * q + 1.0 / 21.0;
        p = p * q + 1.0 / 19.0;
        p = p * q + 1.0 / 17.0;
        p = p * q + 1.0 / 15.0;
        p = p * q + 1.0 / 13.0;
        p = p * q + 1.0 / 11.0;
        p = p * q + 1.0 / 9.0;
        p = p * q + 1.0 / 7.0;
        p = p * q + 1.0 / 5.0;
        p = p * q + 1.0 / 3.0;
        p = 2.0 * (p * q * s + s);
        of->log[i] = large ? p + 0x1.62e42fefa39efp-1 : p;
    }
}

typedef struct {
    Py_ssize_t n_rows, n_parts, n_codes, n_numbers, n_rates, n_params;
    Py_ssize_t n_first;              /* codes of the first part, of which every row has one */
    const int32_t *codes;            /* rows x parts */
    const int32_t *ends, *set_by;    /* the features that each code sets: from ends[c] to ends[c+1] */
    const int32_t *number_features;  /* those that are numbers */
    const double *numbers;           /* rows x numbers */
    const double *params;            /* of features, then the intercept */
    const double *counts, *positives; /* of each row */
    const double *members;           /* rates x rows */
    const double *bends;             /* weights of a row's loss and scores, or none */
    double *sums;                    /* the loss, then the scores behind each rate */
    double *gradients;               /* (1 + rates) x parameters, or none */
    double *diagonal;                /* of each row, or none */
    double *weights;                 /* of each code */
    double *by_code, *by_number;     /* sums of residuals, (1 + rates) each */
    double *residuals;               /* of CHUNK rows, (1 + rates) each */
    double sharpness, cut;           /* of the scores: sigma(sharpness (z - cut)) */
} task;

/* Whether all indices are below ``size``; negative ones are not. */
WIDE static int are_below(Py_ssize_t n, const int32_t *indices, Py_ssize_t size) {
    int is_out = 0;
    uint32_t end = size > INT32_MAX ? INT32_MAX : (uint32_t)size;
    for (Py_ssize_t i = 0; i < n; i++) is_out |= (uint32_t)indices[i] >= end;
    return !is_out;
}

/* The weight of a code is the sum of those of the features that it sets. */
static void prepare(const task *t) {
    for (Py_ssize_t c = 0; c < t->n_codes; c++) {
        double sum = 0.0;
        for (int32_t e = t->ends[c]; e < t->ends[c + 1]; e++) sum += t->params[t->set_by[e]];
        t->weights[c] = sum;
    }
}

/* Gradients from sums by code and by number. */
static void collect(const task *t) {
    Py_ssize_t m = 1 + t->n_rates;
    for (Py_ssize_t k = 0; k < m; k++) {
        double *gradient = t->gradients + k * t->n_params;
        for (Py_ssize_t c = 0; c < t->n_codes; c++)
            for (int32_t e = t->ends[c]; e < t->ends[c + 1]; e++)
                gradient[t->set_by[e]] += t->by_code[c * m + k];
        for (Py_ssize_t j = 0; j < t->n_numbers; j++)
            gradient[t->number_features[j]] += t->by_number[j * m + k];
        for (Py_ssize_t c = 0; c < t->n_first; c++)
            gradient[t->n_params - 1] += t->by_code[c * m + k];
    }
}

static void chunk_logits(const task *t, Py_ssize_t first, int n, double *restrict z) {
    double intercept = t->params[t->n_params - 1];
    for (int i = 0; i < n; i++) {
        const int32_t *row = t->codes + (first + i) * t->n_parts;
        double sum = 0.0;
        for (Py_ssize_t j = 0; j < t->n_parts; j++) sum += t->weights[row[j]];
        z[i] = sum + intercept;
    }
    for (int i = 0; i < n && t->n_numbers; i++) {
        const double *row = t->numbers + (first + i) * t->n_numbers;
        double sum = 0.0;
        for (Py_ssize_t j = 0; j < t->n_numbers; j++)
            sum += row[j] * t->params[t->number_features[j]];
        z[i] += sum;
    }
}

/* The loss of each row, and its probability of label 1. */
WIDE static void losses(int n, const double *restrict z, const double *restrict counts,
                        const double *restrict positives, const logistic *restrict like,
                        double *restrict loss, double *restrict probability) {
    for (int i = 0; i < n; i++) {
        double above = z[i] > 0.0 ? z[i] : 0.0;
        loss[i] = counts[i] * (like->log[i] + above) - positives[i] * z[i];
        probability[i] = (z[i] >= 0.0 ? 1.0 : like->power[i]) * like->inverse[i];
    }
}

WIDE static void scores_of(int n, const double *restrict z, double s,
                           const logistic *restrict like, double *restrict score) {
    for (int i = 0; i < n; i++)
        score[i] = (s * z[i] >= 0.0 ? 1.0 : like->power[i]) * like->inverse[i];
}

/* Four sums side by side: in one order whatever the instructions. */
static double total(int n, const double *values) {
    double a = 0.0, b = 0.0, c = 0.0, d = 0.0;
    int i = 0;
    for (; i + 3 < n; i += 4) {
        a += values[i];
        b += values[i + 1];
        c += values[i + 2];
        d += values[i + 3];
    }
    for (; i < n; i++) a += values[i];
    return (a + b) + (c + d);
}

static double weighted(int n, const double *values, const double *weights) {
    double a = 0.0, b = 0.0, c = 0.0, d = 0.0;
    int i = 0;
    for (; i + 3 < n; i += 4) {
        a += values[i] * weights[i];
        b += values[i + 1] * weights[i + 1];
        c += values[i + 2] * weights[i + 2];
        d += values[i + 3] * weights[i + 3];
    }
    for (; i < n; i++) a += values[i] * weights[i];
    return (a + b) + (c + d);
}

/* Add a row's residuals to the sums of each of its codes; ``m`` is known where it is inlined. */
static inline void scatter(const task *t, Py_ssize_t first, int n, const double *restrict residuals,
                           Py_ssize_t m) {
    double *restrict to = t->by_code;
    for (int i = 0; i < n; i++) {
        const int32_t *row = t->codes + (first + i) * t->n_parts;
        const double *own = residuals + i * m;
        for (Py_ssize_t j = 0; j < t->n_parts; j++) {
            double *sums = to + (Py_ssize_t)row[j] * m;
            for (Py_ssize_t k = 0; k < m; k++) sums[k] += own[k];
        }
    }
    for (int i = 0; i < n && t->n_numbers; i++) {
        const double *row = t->numbers + (first + i) * t->n_numbers;
        const double *own = residuals + i * m;
        for (Py_ssize_t j = 0; j < t->n_numbers; j++)
            for (Py_ssize_t k = 0; k < m; k++) t->by_number[j * m + k] += row[j] * own[k];
    }
}

static void scatter_all(const task *t, Py_ssize_t first, int n, const double *residuals,
                        Py_ssize_t m) {
    switch (m) {
    case 1: scatter(t, first, n, residuals, 1); break;
    case 2: scatter(t, first, n, residuals, 2); break;
    case 3: scatter(t, first, n, residuals, 3); break;
    case 4: scatter(t, first, n, residuals, 4); break;
    case 5: scatter(t, first, n, residuals, 5); break;
    default: scatter(t, first, n, residuals, m);
    }
}

/* Sums over rows first to last; 0 where a code is out of range. */
static int report_rows(const task *t, Py_ssize_t first, Py_ssize_t last) {
    double *residuals = t->residuals;
    double z[CHUNK], probability[CHUNK], score[CHUNK], scratch[CHUNK];
    logistic like;
    Py_ssize_t m = 1 + t->n_rates;
    for (; first < last; first += CHUNK) {
        int n = last - first < CHUNK ? (int)(last - first) : CHUNK;
        const double *counts = t->counts + first, *positives = t->positives + first;
        const double *members = t->members + first;
        if (!are_below(n * t->n_parts, t->codes + first * t->n_parts, t->n_codes)) return 0;
        chunk_logits(t, first, n, z);
        powers(n, z, 1.0, &like);
        logs(n, &like);
        losses(n, z, counts, positives, &like, scratch, probability);
        t->sums[0] += total(n, scratch);
        if (t->diagonal)
            for (int i = 0; i < n; i++)
                t->diagonal[first + i] = t->bends[0] * counts[i] * probability[i] * (1.0 - probability[i]);
        for (int i = 0; i < n; i++) z[i] -= t->cut;
        powers(n, z, t->sharpness, &like);
        scores_of(n, z, t->sharpness, &like, score);
        for (Py_ssize_t j = 0; j < m - 1; j++)
            t->sums[1 + j] += weighted(n, members + j * t->n_rows, score);
        if (!t->gradients) continue;
        for (int i = 0; i < n; i++) residuals[i * m] = counts[i] * probability[i] - positives[i];
        for (int i = 0; i < n; i++) scratch[i] = t->sharpness * score[i] * (1.0 - score[i]);
        for (Py_ssize_t j = 0; j < m - 1; j++)
            for (int i = 0; i < n; i++)
                residuals[i * m + 1 + j] = members[j * t->n_rows + i] * scratch[i];
        scatter_all(t, first, n, residuals, m);
        if (!t->diagonal) continue;
        double between[CHUNK] = {0.0};
        for (Py_ssize_t j = 0; j < m - 1; j++)
            for (int i = 0; i < n; i++)
                between[i] += t->bends[1 + j] * members[j * t->n_rows + i];
        for (int i = 0; i < n; i++)
            t->diagonal[first + i] +=
                t->sharpness * scratch[i] * (1.0 - 2.0 * score[i]) * between[i];
    }
    return 1;
}

/* --- what Python calls ----------------------------------------------------------------------- */

/* Take a contiguous array of doubles ('d') or of four-byte integers ('i'); 0 with an error else. */
static int take(PyObject *from, char kind, int is_output, Py_buffer *to) {
    int flags = PyBUF_C_CONTIGUOUS | PyBUF_FORMAT | (is_output ? PyBUF_WRITABLE : 0);
    if (PyObject_GetBuffer(from, to, flags) != 0) return 0;
    char format = to->format ? to->format[0] : 'B';
    int is_right = kind == 'd' ? format == 'd' && to->itemsize == 8
                               : (format == 'i' || format == 'l') && to->itemsize == 4;
    if (is_right && to->format[1] == '\0') return 1;
    PyBuffer_Release(to);
    PyErr_SetString(PyExc_TypeError, kind == 'd' ? "An array is not one of doubles."
                                                 : "An array is not one of four-byte integers.");
    return 0;
}

/* Take all arguments from ``first`` on, as many as there are kinds; capital ones are outputs. */
static int take_all(PyObject *args, Py_ssize_t first, const char *kinds, Py_buffer *to) {
    Py_ssize_t n = (Py_ssize_t)strlen(kinds);
    for (Py_ssize_t i = 0; i < n; i++) {
        int is_output = kinds[i] == 'D';
        PyObject *from = PyTuple_GetItem(args, first + i);
        if (!from || !take(from, is_output ? 'd' : kinds[i], is_output, &to[i])) {
            while (i--) PyBuffer_Release(&to[i]);
            return 0;
        }
    }
    return 1;
}

static void release_all(Py_buffer *of, int n) {
    for (int i = 0; i < n; i++) PyBuffer_Release(&of[i]);
}

/* Whether a buffer has so many items; sets an error where it has not. */
static int has(const Py_buffer *of, Py_ssize_t items, const char *name) {
    if (of->len == items * of->itemsize) return 1;
    PyErr_Format(PyExc_ValueError, "%s has %zd items instead of %zd.", name, of->len / of->itemsize,
                 items);
    return 0;
}

enum { CODES, ENDS, SET_BY, NUMBERS, NUMBER_FEATURES, PARAMS, COUNTS, POSITIVES, MEMBERS, BENDS,
       SUMS, GRADIENTS, DIAGONAL, N_BUFFERS };

/* Fill in sizes and places; 0 with an error where buffers do not fit each other. */
static int fill(task *t, const Py_buffer *b, Py_ssize_t first, Py_ssize_t last) {
    t->n_rows = b[COUNTS].len / 8;
    t->n_codes = b[ENDS].len / 4 - 1;
    t->n_numbers = b[NUMBER_FEATURES].len / 4;
    t->n_params = b[PARAMS].len / 8;
    t->n_rates = b[SUMS].len / 8 - 1;
    t->codes = b[CODES].buf;
    t->ends = b[ENDS].buf;
    t->set_by = b[SET_BY].buf;
    t->numbers = b[NUMBERS].buf;
    t->number_features = b[NUMBER_FEATURES].buf;
    t->params = b[PARAMS].buf;
    t->counts = b[COUNTS].buf;
    t->positives = b[POSITIVES].buf;
    t->members = b[MEMBERS].buf;
    t->bends = b[BENDS].buf;
    t->sums = b[SUMS].buf;
    t->gradients = b[GRADIENTS].len ? b[GRADIENTS].buf : NULL;
    t->diagonal = b[DIAGONAL].len ? b[DIAGONAL].buf : NULL;
    Py_ssize_t m = 1 + t->n_rates;
    if (t->n_parts > MOST || m > MOST || t->n_numbers > MOST || t->n_rows > MOST ||
        t->n_codes > MOST || t->n_params > MOST) {
        PyErr_SetString(PyExc_ValueError, "There are too many rows, codes, rates or numbers.");
        return 0;
    }
    if (first < 0 || first > last || last > t->n_rows || t->n_codes < 1 || t->n_params < 1 ||
        t->n_rates < 0 || t->n_parts < 1 || t->n_first < 0 || t->n_first > t->n_codes) {
        PyErr_SetString(PyExc_ValueError, "Rows, codes or rates are out of range.");
        return 0;
    }
    int is_in_order = t->ends[0] == 0;
    for (Py_ssize_t c = 0; c < t->n_codes; c++) is_in_order &= t->ends[c] <= t->ends[c + 1];
    if (!is_in_order || !are_below(b[SET_BY].len / 4, t->set_by, t->n_params) ||
        !are_below(t->n_numbers, t->number_features, t->n_params)) {
        PyErr_SetString(PyExc_ValueError, "Features of codes are out of range.");
        return 0;
    }
    return has(&b[CODES], t->n_rows * t->n_parts, "codes") &&
           has(&b[SET_BY], t->ends[t->n_codes], "set_by") &&
           has(&b[NUMBERS], t->n_rows * t->n_numbers, "numbers") &&
           has(&b[POSITIVES], t->n_rows, "positives") &&
           has(&b[MEMBERS], t->n_rows * t->n_rates, "members") &&
           has(&b[BENDS], t->diagonal ? m : 0, "bends") &&
           has(&b[GRADIENTS], t->gradients ? m * t->n_params : 0, "gradients") &&
           has(&b[DIAGONAL], t->diagonal ? t->n_rows : 0, "diagonal");
}

static PyObject *report(PyObject *self, PyObject *args) {
    Py_buffer b[N_BUFFERS];
    Py_ssize_t first, last;
    task t = {0};
    /* Integers, sharpness and cut first, then the buffers in the order of their names above. */
    if (PyTuple_Size(args) != 6 + N_BUFFERS) {
        PyErr_SetString(PyExc_TypeError, "report takes nineteen arguments.");
        return NULL;
    }
    PyObject *numbers = PyTuple_GetSlice(args, 0, 6);
    int is_read = numbers && PyArg_ParseTuple(numbers, "nnnndd", &first, &last, &t.n_parts,
                                              &t.n_first, &t.sharpness, &t.cut);
    Py_XDECREF(numbers);
    if (!is_read || !take_all(args, 6, "iiididddddDDD", b)) return NULL;
    int is_sound = fill(&t, b, first, last);
    double *scratch = NULL;
    if (is_sound) {
        size_t m = 1 + (size_t)t.n_rates, n_codes = (size_t)t.n_codes;
        scratch = PyMem_Calloc(n_codes * (1 + m) + (size_t)t.n_numbers * m + CHUNK * m, 8);
        is_sound = scratch != NULL;
        if (!is_sound) PyErr_NoMemory();
        t.weights = scratch;
        t.by_code = scratch + n_codes;
        t.by_number = t.by_code + n_codes * m;
        t.residuals = t.by_number + (size_t)t.n_numbers * m;
    }
    if (is_sound) {
        Py_BEGIN_ALLOW_THREADS
        prepare(&t);
        is_sound = report_rows(&t, first, last);
        if (is_sound && t.gradients) collect(&t);
        Py_END_ALLOW_THREADS
        if (!is_sound) PyErr_SetString(PyExc_ValueError, "Codes of rows are out of range.");
    }
    PyMem_Free(scratch);
    release_all(b, N_BUFFERS);
    if (!is_sound) return NULL;
    Py_RETURN_NONE;
}

static PyObject *add_pairs(PyObject *self, PyObject *args) {
    Py_buffer buffers[4]; /* codes, other codes, weights, table */
    if (PyTuple_Size(args) != 5) {
        PyErr_SetString(PyExc_TypeError, "add_pairs takes five arguments.");
        return NULL;
    }
    Py_ssize_t width = PyLong_AsSsize_t(PyTuple_GetItem(args, 0));
    if (PyErr_Occurred() || !take_all(args, 1, "iidD", buffers)) return NULL;
    Py_ssize_t n = buffers[2].len / 8, height = width > 0 ? buffers[3].len / 8 / width : 0;
    int is_sound = has(&buffers[0], n, "codes") && has(&buffers[1], n, "codes");
    if (is_sound) {
        const int32_t *a = buffers[0].buf, *b = buffers[1].buf;
        const double *weights = buffers[2].buf;
        double *sums = buffers[3].buf;
        Py_BEGIN_ALLOW_THREADS
        is_sound = are_below(n, a, height) && are_below(n, b, width);
        for (Py_ssize_t i = 0; i < n && is_sound; i++) sums[a[i] * width + b[i]] += weights[i];
        Py_END_ALLOW_THREADS
        if (!is_sound) PyErr_SetString(PyExc_ValueError, "A pair of codes is not in the table.");
    }
    release_all(buffers, 4);
    if (!is_sound) return NULL;
    Py_RETURN_NONE;
}

/* Sums by pair of features of few rows, put into ``own``, which is zero before and after; then each
 * is added once to the upper triangle of ``total``: the same bits as if a matrix of their own had
 * been added. Feature ``size`` is none. */
static void add_rows(Py_ssize_t n, Py_ssize_t n_columns, const int32_t *at, const double *weights,
                     Py_ssize_t size, double *restrict own, double *restrict total) {
    for (Py_ssize_t i = 0; i < n; i++) {
        const int32_t *row = at + i * n_columns;
        for (Py_ssize_t a = 0; a < n_columns; a++) {
            if (row[a] == size) continue;
            double *line = own + row[a] * size;
            for (Py_ssize_t b = a; b < n_columns; b++)
                if (row[b] != size) line[row[b]] += weights[i];
        }
    }
    for (Py_ssize_t i = 0; i < n; i++) {
        const int32_t *row = at + i * n_columns;
        for (Py_ssize_t a = 0; a < n_columns; a++) {
            if (row[a] == size) continue;
            for (Py_ssize_t b = a; b < n_columns; b++) {
                if (row[b] == size) continue;
                double sum = own[row[a] * size + row[b]];
                if (sum == 0.0) continue; /* added already */
                own[row[a] * size + row[b]] = 0.0;
                Py_ssize_t upper = row[a] < row[b] ? row[a] : row[b];
                Py_ssize_t across = row[a] < row[b] ? row[b] : row[a];
                total[upper * size + across] += sum;
            }
        }
    }
}

static PyObject *add_few(PyObject *self, PyObject *args) {
    Py_buffer buffers[4]; /* features of rows, weights, own, total */
    if (PyTuple_Size(args) != 5) {
        PyErr_SetString(PyExc_TypeError, "add_few takes five arguments.");
        return NULL;
    }
    Py_ssize_t size = PyLong_AsSsize_t(PyTuple_GetItem(args, 0));
    if (PyErr_Occurred() || !take_all(args, 1, "idDD", buffers)) return NULL;
    Py_ssize_t n = buffers[1].len / 8, n_columns = n ? buffers[0].len / 4 / n : 0;
    int is_sound = size >= 0 && size < MOST;
    if (!is_sound) PyErr_SetString(PyExc_ValueError, "The matrix is too large.");
    is_sound = is_sound && has(&buffers[0], n * n_columns, "features") &&
               has(&buffers[2], size * size, "own") && has(&buffers[3], size * size, "total");
    if (is_sound) {
        Py_BEGIN_ALLOW_THREADS
        is_sound = are_below(n * n_columns, buffers[0].buf, size + 1);
        if (is_sound)
            add_rows(n, n_columns, buffers[0].buf, buffers[1].buf, size, buffers[2].buf,
                     buffers[3].buf);
        Py_END_ALLOW_THREADS
        if (!is_sound) PyErr_SetString(PyExc_ValueError, "Features of rows are out of range.");
    }
    release_all(buffers, 4);
    if (!is_sound) return NULL;
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"report", report, METH_VARARGS, "Sums over rows of codes, put into the given arrays."},
    {"add_pairs", add_pairs, METH_VARARGS, "Add weights to a table, by pair of codes."},
    {"add_few", add_few, METH_VARARGS, "Add the outer products of few rows of features."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "_kernels", "Reports on rows of codes, compiled.", 0, methods,
    NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__kernels(void) {
    PyObject *made = PyModule_Create(&module);
    if (made && PyModule_AddIntConstant(made, "INTERFACE", INTERFACE) != 0) Py_CLEAR(made);
    return made;
}
