/* update_encode and update_join; contracts are in kernels.h.
 *
 * update_encode: one group for a chunk of 4096 entries. Item lid holds entries lid, lid + 256, ...
 * in registers from the one time that memory is read to the one time that it is written. Selection
 * is by histogram of the distance, in float bits, from the chunk's greatest magnitude: the first
 * has 16 bins an octave, which spreads the entries and thereby the atomics, and leaves some twenty
 * entries in the bin where the k-th largest is; the next one mostly isolates it. */

/* --- sums over the group ---------------------------------------------------------------------- */

struct scan {
    u32 counts[RK_GROUP_ITEMS];
    u32 sums[RK_GROUP_ITEMS + 1u]; /* sums[i] = counts[0] + ... + counts[i - 1] */
    u32 rows[ROW];
};

/* Fills sums from counts, which are zero afterwards. Begins and ends with a barrier. */
RK_FN void scan_run(RK_LOCAL struct scan *scan)
{
    RK_PRIVATE(u32, before, 1);
    RK_BARRIER();
    RK_ITEMS(lid) {
        u32 sum = 0u;
        RK_ROLLED
        for (u32 i = lid & ~(ROW - 1u); i < lid; i++)
            sum += scan->counts[i];
        RK_MINE(before, lid)[0] = sum;
        if (lid % ROW == ROW - 1u)
            scan->rows[lid / ROW] = sum + scan->counts[lid];
    }
    RK_BARRIER();
    RK_ITEMS(lid) {
        u32 sum = RK_MINE(before, lid)[0];
        RK_ROLLED
        for (u32 row = 0u; row < lid / ROW; row++)
            sum += scan->rows[row];
        scan->sums[lid] = sum;
        if (lid == RK_GROUP_ITEMS - 1u)
            scan->sums[RK_GROUP_ITEMS] = sum + scan->counts[lid];
        scan->counts[lid] = 0u;
    }
    RK_BARRIER();
}

/* --- one chunk -------------------------------------------------------------------------------- */

struct encode_memory {
    struct scan scan;
    u64 parts[RK_GROUP_ITEMS], part_rows[ROW];
    u32 above[BITMAP_WORDS], tied[BITMAP_WORDS]; /* bit i % 32 of word i / 32: entry i */
    /* The coordinates, in the order of their indices. */
    u32 indices[K_MAX];
    u32 codes[K_MAX]; /* their floats' bits, then their words */
    float decoded[K_MAX];
    u32 words[CHUNK_WORDS]; /* the chunk's string of bits */
    u32 bin, first_not_finite;
};

/* Where a chunk lies and which of its vectors are there. */
struct chunk {
    u64 first;
    u32 length, present;
    float decay;
};

RK_FN float entry_of(RK_GLOBAL const float *vector, struct chunk chunk, u32 i)
{
    return i < chunk.length ? flush(vector[chunk.first + i]) : 0.0f;
}

/* e of an item's entries, zero beyond the chunk's end. One vector after the other, so that many
 * loads are under way at once. */
RK_FN void load_entries(RK_GLOBAL const float *residual, RK_GLOBAL const float *plus,
                        RK_GLOBAL const float *minus, struct chunk chunk, u32 lid, float *e)
{
    RK_UNROLL
    for (u32 j = 0u; j < PER_ITEM; j++)
        e[j] = chunk.present & WITH_PLUS ? entry_of(plus, chunk, lid + j * RK_GROUP_ITEMS) : 0.0f;
    if (chunk.present & WITH_MINUS) {
        RK_UNROLL
        for (u32 j = 0u; j < PER_ITEM; j++)
            e[j] = flush(e[j] - entry_of(minus, chunk, lid + j * RK_GROUP_ITEMS));
    }
    if (chunk.present & WITH_RESIDUAL) {
        RK_UNROLL
        for (u32 j = 0u; j < PER_ITEM; j++) {
            float kept = entry_of(residual, chunk, lid + j * RK_GROUP_ITEMS);
            e[j] = flush(flush(RK_MUL(chunk.decay, kept)) + e[j]);
        }
    }
}

/* The greatest magnitude of the group; begins with every item's in sums. */
RK_FN u32 greatest_of(RK_LOCAL struct scan *scan)
{
    RK_BARRIER();
    RK_ITEMS(lid) {
        if (lid < ROW) {
            u32 most = 0u;
            for (u32 i = 0u; i < ROW; i++)
                most = scan->sums[i * ROW + lid] > most ? scan->sums[i * ROW + lid] : most;
            scan->rows[lid] = most;
        }
    }
    RK_BARRIER();
    u32 greatest = 0u;
    for (u32 row = 0u; row < ROW; row++)
        greatest = scan->rows[row] > greatest ? scan->rows[row] : greatest;
    return greatest;
}

/* Which entries are taken: those whose distance from the greatest magnitude is below `limit`, and
 * the first `ties` of those where it is equal. A zero's distance is `greatest`: never below the
 * limit. */
struct cut {
    u32 greatest, limit, ties;
};

RK_FN u32 distance_of(struct cut cut, float e)
{
    return cut.greatest - magnitude_of(e);
}

/* The search for the cut: of the distances low ... low + span - 1, `wanted` entries are taken. A
 * bin has 1 << shift distances; in the first pass, bin 255 has also all that are farther away. */
struct search {
    u32 low, span, shift, wanted, done;
    struct cut cut;
};

#define FIRST_SHIFT (FRACTION_BITS - 4u)
#define LAST_BIN (RK_GROUP_ITEMS - 1u)
#define NO_BIN RK_GROUP_ITEMS

RK_FN u32 at_most(u32 a, u32 b)
{
    return a < b ? a : b;
}

RK_FN void count_distances(const float *e, struct search search, RK_LOCAL u32 *counts)
{
    RK_UNROLL
    for (u32 j = 0u; j < PER_ITEM; j++) {
        u32 above_low = search.cut.greatest - search.low - magnitude_of(e[j]);
        if (above_low < search.span)
            rk_local_add(&counts[at_most(above_low >> search.shift, LAST_BIN)], 1u);
    }
}

/* Goes on in the bin where the last wanted entry is, until all of a bin is wanted or all in it are
 * equal. NO_BIN: there are fewer than wanted, and all are taken. */
RK_FN struct search narrow(struct search search, u32 bin, RK_LOCAL const u32 *sums)
{
    search.done = 1u;
    if (bin == NO_BIN)
        return search;
    u32 inside = sums[bin + 1u] - sums[bin];
    u32 rest = bin == LAST_BIN && search.shift == FIRST_SHIFT ? 1u : 0u;
    search.wanted -= sums[bin];
    search.low += bin << search.shift;
    search.span = search.cut.greatest - search.low;
    if (rest == 0u)
        search.span = at_most(search.span, 1u << search.shift);
    search.shift = rest ? FRACTION_BITS : search.shift > 8u ? search.shift - 8u : 0u;
    search.done = inside == search.wanted || search.span == 1u ? 1u : 0u;
    search.cut.limit = inside == search.wanted ? search.low + search.span : search.low;
    search.cut.ties = inside == search.wanted ? 0u : search.wanted;
    return search;
}

RK_FN struct cut find_cut(RK_PRIVATE_OF(float, e, PER_ITEM), u32 greatest, u32 wanted,
                          RK_LOCAL struct encode_memory *m)
{
    struct search search = {0u, greatest, FIRST_SHIFT, wanted, 0u, {greatest, greatest, 0u}};
    do {
        RK_ITEMS(lid) {
            count_distances(RK_MINE(e, lid), search, m->scan.counts);
        }
        scan_run(&m->scan);
        RK_ITEMS(lid) {
            if (m->scan.sums[lid] < search.wanted && search.wanted <= m->scan.sums[lid + 1u])
                m->bin = lid;
        }
        RK_BARRIER();
        search = narrow(search, m->bin, m->scan.sums);
    } while (search.done == 0u);
    return search.cut;
}

#define NOT_TAKEN 0xFFFFFFFFu
#define TIES_SHIFT 16u /* sums of the bitmaps: of `above` below it, of `tied` from it on */

/* How many coordinates come before entry i, if it is one. */
RK_FN u32 rank_of(RK_LOCAL const struct encode_memory *m, u32 ties, u32 i)
{
    u32 bit = 1u << i % 32u, sums = m->scan.sums[i / 32u];
    u32 above = m->above[i / 32u], tied = m->tied[i / 32u];
    u32 ties_before = (sums >> TIES_SHIFT) + rk_ones(tied & (bit - 1u));
    u32 before = (sums & 0xFFFFu) + rk_ones(above & (bit - 1u)) + at_most(ties_before, ties);
    u32 taken = (above & bit) | (ties_before < ties ? tied & bit : 0u);
    return taken != 0u ? before : NOT_TAKEN;
}

/* Marks in the bitmaps what lies before and at the limit, and sums both up for rank_of. Returns the
 * number of coordinates. */
RK_FN u32 rank_entries(RK_PRIVATE_OF(float, e, PER_ITEM), struct cut cut,
                       RK_LOCAL struct encode_memory *m)
{
    RK_ITEMS(lid) {
        RK_UNROLL
        for (u32 j = 0u; j < PER_ITEM; j++) {
            u32 i = lid + j * RK_GROUP_ITEMS, distance = distance_of(cut, RK_MINE(e, lid)[j]);
            if (distance < cut.limit)
                rk_local_or(&m->above[i / 32u], 1u << i % 32u);
            if (distance == cut.limit && cut.ties > 0u)
                rk_local_or(&m->tied[i / 32u], 1u << i % 32u);
        }
    }
    RK_BARRIER();
    RK_ITEMS(lid) {
        if (lid < BITMAP_WORDS)
            m->scan.counts[lid] = rk_ones(m->above[lid]) | rk_ones(m->tied[lid]) << TIES_SHIFT;
    }
    scan_run(&m->scan);
    u32 all = m->scan.sums[RK_GROUP_ITEMS];
    return (all & 0xFFFFu) + at_most(all >> TIES_SHIFT, cut.ties);
}

/* The coordinates in the order of their indices. */
RK_FN void collect(RK_PRIVATE_OF(float, e, PER_ITEM), struct cut cut,
                   RK_LOCAL struct encode_memory *m)
{
    RK_ITEMS(lid) {
        RK_UNROLL
        for (u32 j = 0u; j < PER_ITEM; j++) {
            u32 i = lid + j * RK_GROUP_ITEMS, rank = NOT_TAKEN;
            if (distance_of(cut, RK_MINE(e, lid)[j]) <= cut.limit)
                rank = rank_of(m, cut.ties, i);
            if (rank != NOT_TAKEN) {
                m->indices[rank] = i;
                m->codes[rank] = rk_bits(RK_MINE(e, lid)[j]);
            }
        }
    }
    RK_BARRIER();
}

/* Coders 1 and 2: the sum of the fixed-point magnitudes of all, or only of the large ones; times
 * 1024, plus how many they are. */
RK_FN u64 sum_magnitudes(struct quantiser quantiser, u32 only_large,
                         RK_LOCAL struct encode_memory *m)
{
    RK_ITEMS(lid) {
        u64 sum = 0u;
        for (u32 c = lid; c < quantiser.count; c += RK_GROUP_ITEMS) {
            u64 fixed = fixed_point(m->codes[c] & MAGNITUDE, quantiser.exponent);
            if (only_large == 0u || is_large(quantiser, m->codes[c]))
                sum += fixed << 10 | 1u;
        }
        m->parts[lid] = sum;
    }
    RK_BARRIER();
    RK_ITEMS(lid) {
        if (lid < ROW) {
            u64 sum = 0u;
            for (u32 i = 0u; i < ROW; i++)
                sum += m->parts[i * ROW + lid];
            m->part_rows[lid] = sum;
        }
    }
    RK_BARRIER();
    u64 sum = 0u;
    for (u32 row = 0u; row < ROW; row++)
        sum += m->part_rows[row];
    return sum;
}

/* From the sums over all and over the large ones; `count` becomes 0 when nothing can be sent. */
RK_FN struct quantiser with_scales(struct quantiser made, u64 large)
{
    u32 count = made.count, count_large = (u32)large & 1023u, second = 0u;
    u64 sum_large = large >> 10;
    made.coder.scale = count > 0u ? made.exponent : 0u;
    if (made.coder.values <= VALUES_TWO)
        made.coder.scale = scale_of_mean(sum_large, count_large, made.exponent);
    second = made.coder.scale;
    if (count_large < count)
        second = scale_of_mean(made.sum - sum_large, count - count_large, made.exponent);
    made.coder.second = second > 0u ? second : 1u;
    made.count = made.coder.scale > 0u ? count : 0u;
    return made;
}

/* For coder 1 all are large. The other coders need no sums, but a loop that runs. */
RK_FN struct quantiser make_quantiser(u32 values, u32 count, u32 greatest,
                                      RK_LOCAL struct encode_memory *m)
{
    u32 exponent = greatest >> FRACTION_BITS, passes = values == VALUES_TWO ? 2u : 1u, pass = 0u;
    struct quantiser made = {{values, 0u, 0u}, count, exponent, 0u};
    u64 sum = 0u;
    do {
        sum = sum_magnitudes(made, pass, m);
        made.sum = pass == 0u ? sum >> 10 : made.sum;
        pass++;
    } while (pass < passes);
    return with_scales(made, sum);
}

RK_FN void quantise(struct quantiser quantiser, RK_LOCAL struct encode_memory *m)
{
    RK_ITEMS(lid) {
        for (u32 c = lid; c < quantiser.count; c += RK_GROUP_ITEMS) {
            u32 bits = m->codes[c], word = word_of(quantiser, bits);
            m->codes[c] = word;
            m->decoded[c] = value_of(quantiser.coder, word);
        }
    }
    RK_BARRIER();
}

/* Residual and add_to of one item's entries; `sent`: there are coordinates. */
RK_FN void write_back(RK_GLOBAL float *residual, RK_GLOBAL float *add_to, struct chunk chunk,
                      struct cut cut, u32 sent, u32 lid, const float *e,
                      RK_LOCAL const struct encode_memory *m)
{
    RK_UNROLL
    for (u32 j = 0u; j < PER_ITEM; j++) {
        u32 i = lid + j * RK_GROUP_ITEMS, rank = NOT_TAKEN;
        float left = e[j];
        if (sent && distance_of(cut, left) <= cut.limit)
            rank = rank_of(m, cut.ties, i);
        if (rank != NOT_TAKEN) {
            float decoded = m->decoded[rank];
            left = flush(left - decoded);
            if (chunk.present & WITH_ADD_TO) {
                RK_GLOBAL float *entry = add_to + chunk.first + i;
                *entry = flush(flush(*entry) + decoded);
            }
        }
        if (chunk.present & WITH_RESIDUAL && i < chunk.length)
            residual[chunk.first + i] = left;
    }
}

/* --- the string of bits ----------------------------------------------------------------------- */

/* value has no bits above `count` <= 32; words were zero there. */
RK_FN void put_bits(RK_LOCAL u32 *words, u32 at, u32 value, u32 count)
{
    u64 shifted = (u64)value << at % 32u;
    rk_local_or(&words[at / 32u], (u32)shifted);
    if (at % 32u + count > 32u)
        rk_local_or(&words[at / 32u + 1u], (u32)(shifted >> 32));
}

/* `gap >> b` ones, a zero, the low b bits: at most 31 bits at once, for shifts end there. */
RK_FN void put_rice(RK_LOCAL u32 *words, u32 at, u32 gap, u32 b)
{
    u32 ones = gap >> b, low = gap & ((1u << b) - 1u);
    RK_ROLLED
    for (; ones + 1u + b > 31u; ones -= 16u, at += 16u)
        put_bits(words, at, 0xFFFFu, 16u);
    put_bits(words, at, low << (ones + 1u) | ((1u << ones) - 1u), ones + 1u + b);
}

RK_FN u32 gap_before(RK_LOCAL const u32 *indices, u32 c)
{
    return c > 0u ? indices[c] - indices[c - 1u] - 1u : indices[0];
}

/* Scales and count; returns how many bits. Item 0 calls it with `write`. */
RK_FN u32 put_head(RK_LOCAL u32 *words, struct quantiser quantiser, u32 whole, u32 write)
{
    u32 count = quantiser.count, bits = SCALE_BITS;
    u64 head = count > 0u ? quantiser.coder.scale : 0u;
    if (count > 0u && count < whole) {
        head = SCALE_COUNTED | head << SCALE_BITS | (u64)count << 2u * SCALE_BITS;
        bits = 2u * SCALE_BITS + COUNT_BITS;
    }
    if (count > 0u && quantiser.coder.values == VALUES_TWO) {
        head |= (u64)quantiser.coder.second << bits;
        bits += SCALE_BITS;
    }
    if (write) {
        put_bits(words, 0u, (u32)head, 32u);
        put_bits(words, 32u, (u32)(head >> 32), 32u);
    }
    return bits;
}

/* Coordinates 2 * lid and 2 * lid + 1 are item lid's, so that sums over items place them. */
RK_FN void put_coordinates(struct quantiser quantiser, u32 b, u32 at, u32 lid,
                           RK_LOCAL struct encode_memory *m)
{
    u32 bits = value_bits(quantiser.coder.values);
    u32 index_at = at + m->scan.sums[lid], value_at = at + m->scan.sums[RK_GROUP_ITEMS];
    RK_ROLLED
    for (u32 c = 2u * lid; c < 2u * lid + 2u && c < quantiser.count; c++) {
        u32 gap = gap_before(m->indices, c);
        put_rice(m->words, index_at, gap, b);
        index_at += (gap >> b) + 1u + b;
        put_bits(m->words, value_at + c * bits, m->codes[c], bits);
    }
}

/* Fills words, which are zero; returns the number of bits. */
RK_FN u32 pack(struct quantiser quantiser, u32 length, u32 whole, RK_LOCAL struct encode_memory *m)
{
    u32 count = quantiser.count, b = count > 0u ? rice_bits(length, count) : 0u;
    RK_BARRIER(); /* all have used the ranks */
    RK_ITEMS(lid) {
        RK_ROLLED
        for (u32 c = 2u * lid; c < 2u * lid + 2u && c < count; c++)
            m->scan.counts[lid] += (gap_before(m->indices, c) >> b) + 1u + b;
    }
    scan_run(&m->scan);
    u32 head = put_head(m->words, quantiser, whole, 0u);
    RK_ITEMS(lid) {
        if (lid == 0u)
            put_head(m->words, quantiser, whole, 1u);
        put_coordinates(quantiser, b, head, lid, m);
    }
    RK_BARRIER();
    return head + m->scan.sums[RK_GROUP_ITEMS] + count * value_bits(quantiser.coder.values);
}

/* --- kernels ---------------------------------------------------------------------------------- */

RK_FN void clear_memory(RK_LOCAL struct encode_memory *m, u32 lid)
{
    m->scan.counts[lid] = 0u;
    m->words[lid] = 0u;
    if (lid < BITMAP_WORDS)
        m->above[lid] = m->tied[lid] = 0u;
    if (lid == 0u) {
        m->bin = NO_BIN;
        m->first_not_finite = CHUNK;
    }
}

RK_FN void find_not_finite(const float *e, u32 lid, RK_LOCAL struct encode_memory *m)
{
    RK_UNROLL
    for (u32 j = 0u; j < PER_ITEM; j++) {
        if (magnitude_of(e[j]) >= NOT_FINITE)
            rk_local_min(&m->first_not_finite, lid + j * RK_GROUP_ITEMS);
    }
}

RK_KERNEL void update_encode(RK_GLOBAL float *residual, RK_GLOBAL const float *plus,
                             RK_GLOBAL const float *minus, RK_GLOBAL float *add_to, float decay,
                             u32 present, u32 n_low, u32 n_high, u32 first_chunk, u32 values, u32 k,
                             RK_GLOBAL u32 *chunk_words, u32 chunk_stride,
                             RK_GLOBAL u32 *chunk_bits)
{
    RK_SHARED(struct encode_memory, memory);
    RK_PRIVATE(float, e, PER_ITEM);
    RK_LOCAL struct encode_memory *m = &memory;
    u32 group = RK_GROUP_ID, length = chunk_length(n_low, n_high, first_chunk + group);
    struct chunk chunk = {(u64)(first_chunk + group) * CHUNK, length, present, decay};

    RK_ITEMS(lid) {
        clear_memory(m, lid);
        load_entries(residual, plus, minus, chunk, lid, RK_MINE(e, lid));
        u32 greatest = 0u;
        RK_UNROLL
        for (u32 j = 0u; j < PER_ITEM; j++) {
            u32 magnitude = magnitude_of(RK_MINE(e, lid)[j]);
            greatest = magnitude > greatest ? magnitude : greatest;
        }
        m->scan.sums[lid] = greatest;
    }
    u32 greatest = greatest_of(&m->scan), whole = k < length ? k : length;
    RK_ITEMS(lid) {
        if (greatest >= NOT_FINITE)
            find_not_finite(RK_MINE(e, lid), lid, m);
    }
    struct cut cut = find_cut(e, greatest, whole, m);
    u32 count = rank_entries(e, cut, m);
    collect(e, cut, m);
    struct quantiser quantiser = make_quantiser(values, count, greatest, m);
    quantise(quantiser, m);
    RK_ITEMS(lid) {
        write_back(residual, add_to, chunk, cut, quantiser.count, lid, RK_MINE(e, lid), m);
    }
    u32 bits = pack(quantiser, length, whole, m);
    RK_ITEMS(lid) {
        for (u32 i = lid; i * 32u < bits; i += RK_GROUP_ITEMS)
            chunk_words[(u64)group * chunk_stride + i] = m->words[i];
        if (lid == 0u)
            chunk_bits[group] =
                greatest < NOT_FINITE ? bits : BITS_NOT_FINITE | m->first_not_finite;
    }
}

/* Up to 32 bits of a string. */
RK_FN u32 take_bits(RK_GLOBAL const u32 *words, u32 at, u32 count)
{
    u64 some = words[at / 32u];
    if (at % 32u + count > 32u)
        some |= (u64)words[at / 32u + 1u] << 32;
    return (u32)(some >> at % 32u & (((u64)1u << count) - 1u));
}

/* 32 bits from bit `at` of the joined chunks; zeros after the last. */
RK_FN u32 joined_word(RK_GLOBAL const u32 *chunk_words, u32 chunk_stride,
                      RK_LOCAL const u32 *begins, u32 at)
{
    u32 chunk = 0u, word = 0u, filled = 0u;
    for (u32 step = SUPER_CHUNK / 2u; step > 0u; step /= 2u) /* the last that begins by `at` */
        chunk += begins[chunk + step] <= at ? step : 0u;
    for (; filled < 32u && chunk < SUPER_CHUNK; chunk++) {
        u32 from = at + filled, left = begins[chunk + 1u] - from;
        u32 some = left < 32u - filled ? left : 32u - filled;
        if (some > 0u)
            word |= take_bits(chunk_words + (u64)chunk * chunk_stride, from - begins[chunk], some)
                    << filled;
        filled += some;
    }
    return word;
}

RK_KERNEL void update_join(RK_GLOBAL const u32 *chunk_words, u32 chunk_stride,
                           RK_GLOBAL const u32 *chunk_bits, u32 chunks, RK_GLOBAL u32 *slots,
                           u32 slot_stride, RK_GLOBAL u32 *super_words)
{
    RK_SHARED(struct scan, scan);
    u32 group = RK_GROUP_ID, first = group * SUPER_CHUNK;
    RK_ITEMS(lid) {
        u32 bits = first + lid < chunks ? chunk_bits[first + lid] : 0u;
        scan.counts[lid] = bits < BITS_NOT_FINITE ? bits : 0u;
    }
    scan_run(&scan);
    RK_ITEMS(lid) {
        u32 words = (scan.sums[SUPER_CHUNK] + 31u) / 32u;
        RK_GLOBAL const u32 *from = chunk_words + (u64)first * chunk_stride;
        RK_GLOBAL u32 *slot = slots + (u64)group * slot_stride;
        for (u32 i = lid; i < words; i += RK_GROUP_ITEMS)
            slot[i] = joined_word(from, chunk_stride, scan.sums, i * 32u);
        if (lid == 0u)
            super_words[group] = words;
    }
}
