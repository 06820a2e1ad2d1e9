/* Selection with AVX2 (compiled for it; chosen at run time). Plain functions, any thread. While e
 * is computed, every entry that reaches a bound is marked; if at least k are, the k largest are
 * among them, and only they are looked at one by one. The bound is guessed from the chunk before.
 * When the guess was too high, the k-th largest of the maxima of small groups is one that cannot
 * be (k groups hold one entry each that reaches it). Chunks shorter than 4096 take the portable
 * way. */
#include "common/codec/select.h"

#if defined(__x86_64__)

#include <immintrin.h>

#define LANES 8u
#define MARGIN (FLOAT_NORMAL_MIN / 16) /* of an octave, linear in the float's bits */

static inline __m256i magnitude_of(__m256 x)
{
    return _mm256_and_si256(_mm256_castps_si256(x), _mm256_set1_epi32((int)FLOAT_MAGNITUDE));
}

/* float_flush for eight. */
static inline __m256 flush(__m256 x)
{
    __m256i normal =
        _mm256_cmpgt_epi32(magnitude_of(x), _mm256_set1_epi32((int)FLOAT_NORMAL_MIN - 1));
    return _mm256_and_ps(x, _mm256_castsi256_ps(normal));
}

static inline __m256i max_of_halves(__m256i a, __m256i b)
{
    return _mm256_max_epi32(_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b));
}

static inline __m256i max_of_pairs(__m256i a, __m256i b)
{
    __m256 x = _mm256_castsi256_ps(a), y = _mm256_castsi256_ps(b);
    return _mm256_max_epi32(_mm256_castps_si256(_mm256_shuffle_ps(x, y, 0x88)),
                            _mm256_castps_si256(_mm256_shuffle_ps(x, y, 0xDD)));
}

/* The greatest of each of eight vectors, in order. */
static inline __m256i greatest_of_each(const __m256i x[LANES])
{
    __m256i ab = max_of_halves(x[0], x[1]), cd = max_of_halves(x[2], x[3]);
    __m256i ef = max_of_halves(x[4], x[5]), gh = max_of_halves(x[6], x[7]);
    __m256i low = max_of_pairs(ab, cd), high = max_of_pairs(ef, gh); /* a b c d | a b c d */
    return _mm256_max_epi32(_mm256_permute2x128_si256(low, high, 0x20),
                            _mm256_permute2x128_si256(low, high, 0x31));
}

static inline uint32_t greatest_lane(__m256i x)
{
    uint32_t lanes[LANES], greatest = 0;
    _mm256_storeu_si256((__m256i *)lanes, x);
    for (uint32_t i = 0; i < LANES; i++)
        greatest = lanes[i] > greatest ? lanes[i] : greatest;
    return greatest;
}

/* chunk_input_at for eight entries; the flags are constants where this is inlined. A residual needs
 * no flush before the product: decay ≤ 1 makes nothing larger. */
static inline __attribute__((always_inline)) __m256
input_at(const struct chunk_input *input, uint32_t i, bool residual, bool plus, bool minus)
{
    __m256 e = _mm256_setzero_ps();
    if (plus)
        e = flush(_mm256_loadu_ps(input->plus + i));
    if (minus)
        e = flush(_mm256_sub_ps(e, flush(_mm256_loadu_ps(input->minus + i))));
    if (!residual)
        return e;
    __m256 kept =
        flush(_mm256_mul_ps(_mm256_set1_ps(input->decay), _mm256_loadu_ps(input->residual + i)));
    return plus || minus ? flush(_mm256_add_ps(kept, e)) : kept;
}

/* --- load and mark ---------------------------------------------------------------------------- */

/* The chunk before had its threshold a little higher than this, so that this one likely has k
 * entries over it. 0: unknown. Only time depends on it. */
static uint32_t guess_bound(const struct chunk_work *work)
{
    return work->last_threshold > MARGIN ? work->last_threshold - MARGIN : 0;
}

/* Bit j of marks[i / 8]: entry i + j reaches the bound. */
static inline uint8_t mark_of(__m256i magnitude, __m256i below)
{
    __m256i over = _mm256_cmpgt_epi32(magnitude, below);
    return (uint8_t)_mm256_movemask_ps(_mm256_castsi256_ps(over));
}

/* The next chunk's input is fetched while this one is worked on, so that memory is never idle:
 * three quarters of it while this one is loaded, the rest while its candidates are sought (all at
 * once would make the loading wait). Measured: 0.57 of the triad without, 0.68 with. */
#define FETCHED_BY_LOAD (CODEC_CHUNK / 4 * 3)
#define STRETCH 64u /* entries */

/* A macro: gcc 12 takes a function that only prefetches for one without effect. */
#define FETCH(from) _mm_prefetch((const char *)(from), _MM_HINT_T1)

static inline __attribute__((always_inline)) void load_as(struct chunk_input input, float *e,
                                                          struct chunk_work *work, bool residual,
                                                          bool plus, bool minus)
{
    __m256i greatest = _mm256_setzero_si256();
    work->bound = guess_bound(work);
    __m256i below = _mm256_set1_epi32((int)work->bound - 1);
    for (uint32_t i = 0, next = CODEC_CHUNK; i < CODEC_CHUNK; i += STRETCH) {
        for (uint32_t j = i; j < i + STRETCH; j += LANES) {
            __m256 x = input_at(&input, j, residual, plus, minus);
            __m256i magnitude = magnitude_of(x);
            _mm256_storeu_ps(e + j, x);
            work->marks[j / LANES] = mark_of(magnitude, below);
            greatest = _mm256_max_epi32(greatest, magnitude);
            if (j % 16 != 0 || j == i)
                continue;
            if (residual)
                FETCH(input.residual + next);
            if (plus)
                FETCH(input.plus + next);
            if (minus)
                FETCH(input.minus + next);
            next += 16;
        }
    }
    work->greatest = greatest_lane(greatest);
    const float *first = residual ? input.residual : input.plus;
    const float *second = plus ? (residual || !minus ? input.plus : input.minus) : first;
    work->ahead[0] = first ? first + CODEC_CHUNK + FETCHED_BY_LOAD : e;
    work->ahead[1] = second ? second + CODEC_CHUNK + FETCHED_BY_LOAD : e;
}

static void load(const struct chunk_input *input, uint32_t length, float *e,
                 struct chunk_work *work)
{
    bool residual = input->residual, plus = input->plus, minus = input->minus;
    if (length < CODEC_CHUNK)
        select_portable.load(input, length, e, work);
    else if (residual && plus && minus)
        load_as(*input, e, work, true, true, true);
    else if (residual && plus)
        load_as(*input, e, work, true, true, false);
    else if (plus && minus)
        load_as(*input, e, work, false, true, true);
    else
        load_as(*input, e, work, residual, plus, minus);
}

static void mark(const float *e, uint32_t bound, struct chunk_work *work)
{
    __m256i greatest = _mm256_setzero_si256(), below = _mm256_set1_epi32((int)bound - 1);
    work->bound = bound;
    for (uint32_t i = 0; i < CODEC_CHUNK; i += LANES) {
        __m256i magnitude = magnitude_of(_mm256_loadu_ps(e + i));
        work->marks[i / LANES] = mark_of(magnitude, below);
        greatest = _mm256_max_epi32(greatest, magnitude);
    }
    work->greatest = greatest_lane(greatest);
}

static void measure(const float *e, uint32_t length, struct chunk_work *work)
{
    if (length < CODEC_CHUNK)
        select_portable.measure(e, length, work);
    else
        mark(e, guess_bound(work), work);
}

/* --- thresholds ------------------------------------------------------------------------------- */

/* length: a multiple of 16. */
static inline uint32_t count_at_least(const uint32_t *values, uint32_t length, uint32_t threshold)
{
    __m256i below = _mm256_set1_epi32((int)threshold - 1);
    __m256i even = _mm256_setzero_si256(), odd = even;
    for (uint32_t i = 0; i < length; i += 2 * LANES) {
        __m256i x = _mm256_load_si256((const __m256i *)(values + i));
        __m256i y = _mm256_load_si256((const __m256i *)(values + i + LANES));
        even = _mm256_sub_epi32(even, _mm256_cmpgt_epi32(x, below));
        odd = _mm256_sub_epi32(odd, _mm256_cmpgt_epi32(y, below));
    }
    __m256i sum = _mm256_add_epi32(even, odd);
    __m128i half = _mm_add_epi32(_mm256_castsi256_si128(sum), _mm256_extracti128_si256(sum, 1));
    half = _mm_add_epi32(half, _mm_shuffle_epi32(half, 0x4E));
    half = _mm_add_epi32(half, _mm_shuffle_epi32(half, 0xB1));
    return (uint32_t)_mm_cvtsi128_si32(half);
}

/* Halves the interval [low, high) of thresholds until low is reached by exactly k, or low is the
 * k-th largest, or the interval is no wider than `width`. At least k reach low, fewer reach
 * high. */
static uint32_t narrow(const uint32_t *values, uint32_t length, uint32_t k, uint32_t low,
                       uint32_t high, uint32_t width)
{
    while (high - low > width) {
        uint32_t middle = low + (high - low) / 2;
        uint32_t count = count_at_least(values, length, middle);
        high = count < k ? middle : high; /* no branch: nobody could foretell it */
        low = count < k ? low : middle;
        if (count == k)
            break;
    }
    return low;
}

/* Maxima of the chunk's groups of 8 neighbours; returns how many. */
static uint32_t measure_groups(const float *e, uint32_t maxima[CODEC_CHUNK / LANES])
{
    for (uint32_t i = 0; i < CODEC_CHUNK / LANES; i += LANES) {
        __m256i group[LANES];
        for (uint32_t g = 0; g < LANES; g++)
            group[g] = magnitude_of(_mm256_loadu_ps(e + (i + g) * LANES));
        _mm256_store_si256((__m256i *)(maxima + i), greatest_of_each(group));
    }
    return CODEC_CHUNK / LANES;
}

/* A number that the k-th largest entry reaches; at least 1, so that zeros are left out. */
static uint32_t lower_bound(const float *e, uint32_t greatest, uint32_t k)
{
    const uint32_t octave = FLOAT_NORMAL_MIN;
    uint32_t maxima[CODEC_CHUNK / LANES] __attribute__((aligned(32)));
    uint32_t groups = measure_groups(e, maxima);
    uint32_t high = greatest + 1, low = high > 4 * octave ? high - 4 * octave : 1;
    if (count_at_least(maxima, groups, low) < k) {
        high = low;
        low = 1;
        if (count_at_least(maxima, groups, low) < k)
            return 1;
    }
    return narrow(maxima, groups, k, low, high, octave / 64);
}

/* --- select ----------------------------------------------------------------------------------- */

/* Notes the marked entries, rising; returns how many. */
static uint32_t find_candidates(const float *e, struct chunk_work *work)
{
    uint32_t *next = work->candidates;
    for (uint32_t i = 0; i < CODEC_CHUNK; i += STRETCH) {
        uint64_t marks;
        FETCH(work->ahead[0] + i / 4);
        FETCH(work->ahead[1] + i / 4);
        memcpy(&marks, work->marks + i / LANES, sizeof marks);
        /* Most have up to four: no branch for those (rubbish is overwritten by the next). */
        uint32_t *end = next + _mm_popcnt_u64(marks);
        for (int j = 0; j < 4; j++, marks = _blsr_u64(marks))
            *next++ = i + (uint32_t)_tzcnt_u64(marks);
        for (; marks; marks = _blsr_u64(marks))
            *next++ = i + (uint32_t)_tzcnt_u64(marks);
        next = end;
    }
    uint32_t found = (uint32_t)(next - work->candidates);
    for (uint32_t i = 0; i < found; i++) {
        uint32_t bits = float_bits(e[work->candidates[i]]);
        work->candidate_bits[i] = bits;
        work->magnitudes[i] = bits & FLOAT_MAGNITUDE;
    }
    return found;
}

/* The k-th largest of the candidates, or a number that exactly k reach; more than k reach bound. */
static uint32_t find_threshold(const struct chunk_work *work, uint32_t padded, uint32_t k,
                               uint32_t bound)
{
    uint32_t high = work->greatest + 1, likely = work->last_threshold + MARGIN;
    if (likely > bound && likely < high) {
        if (count_at_least(work->magnitudes, padded, likely) < k)
            high = likely;
        else
            bound = likely;
    }
    return narrow(work->magnitudes, padded, k, bound, high, 1);
}

/* Moves the lanes whose bit is set in mask to the front. */
static inline __m256i front(uint32_t mask)
{
    uint64_t bytes = _pdep_u64(mask, 0x0101010101010101) * 0xFF;
    uint64_t lanes = _pext_u64(0x0706050403020100, bytes);
    return _mm256_cvtepu8_epi32(_mm_cvtsi64_si128((long long)lanes));
}

static inline void store_front(uint32_t *to, const uint32_t *from, __m256i order)
{
    __m256i x = _mm256_load_si256((const __m256i *)from);
    _mm256_storeu_si256((__m256i *)to, _mm256_permutevar8x32_epi32(x, order));
}

/* The candidates that reach the threshold are the selection: at most k. */
static uint32_t take_all(uint32_t padded, uint32_t threshold, struct chunk_work *work)
{
    struct selection *selection = &work->selection;
    __m256i below = _mm256_set1_epi32((int)threshold - 1);
    uint32_t count = 0;
    for (uint32_t i = 0; i < padded; i += LANES) {
        __m256i magnitude = _mm256_load_si256((const __m256i *)(work->magnitudes + i));
        uint32_t mask = mark_of(magnitude, below);
        __m256i order = front(mask);
        store_front(selection->indices + count, work->candidates + i, order);
        store_front(selection->bits + count, work->candidate_bits + i, order);
        count += (uint32_t)_mm_popcnt_u32(mask);
    }
    return count;
}

/* More than k reach it, so some of those that equal it must stay: the last ones. */
static uint32_t take_but_ties(uint32_t found, uint32_t k, uint32_t threshold,
                              struct chunk_work *work)
{
    struct selection *selection = &work->selection;
    uint32_t above = 0, count = 0;
    for (uint32_t i = 0; i < found; i++)
        above += work->magnitudes[i] > threshold;
    uint32_t ties = k - above;
    for (uint32_t i = 0; i < found; i++) {
        bool tie = work->magnitudes[i] == threshold && ties > 0;
        if (work->magnitudes[i] <= threshold && !tie)
            continue;
        ties -= tie;
        selection->indices[count] = work->candidates[i];
        selection->bits[count++] = work->candidate_bits[i];
    }
    return count;
}

static void choose(const float *e, uint32_t length, uint32_t k, struct chunk_work *work)
{
    if (length < CODEC_CHUNK) {
        select_portable.select(e, length, k, work);
        return;
    }
    uint32_t found = work->bound > 0 ? find_candidates(e, work) : 0;
    if (found < k) {
        mark(e, lower_bound(e, work->greatest, k), work);
        found = find_candidates(e, work);
    }
    uint32_t padded = (found + 2 * LANES - 1) / (2 * LANES) * (2 * LANES);
    for (uint32_t i = found; i < padded; i++)
        work->magnitudes[i] = 0;
    uint32_t threshold = work->bound;
    if (found > k)
        threshold = find_threshold(work, padded, k, work->bound);
    work->last_threshold = found < k ? 0 : threshold;
    if (count_at_least(work->magnitudes, padded, threshold) <= k)
        work->selection.count = take_all(padded, threshold, work);
    else
        work->selection.count = take_but_ties(found, k, threshold, work);
}

const struct select_kernels select_avx2 = {"avx2", load, measure, choose};

#endif
