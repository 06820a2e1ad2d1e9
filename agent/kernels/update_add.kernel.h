/* update_add: one item decodes a chunk and adds it; contract in kernels.h. */

/* --- decoding: one item for a chunk ----------------------------------------------------------- */

#define ADD_CHUNKS                                                                                 \
    64u /* of one group; the other items rest, for there are fewer chunks than lanes */
#define ADD_AT_ONCE 4u /* coordinates whose entries an item waits for together */

struct bit_reader {
    RK_GLOBAL const u32 *next;
    u64 bits; /* the next `held`, low first; zeros above */
    u32 held;
};

/* Only when bits are missing: nothing is read beyond the word of the last one. */
RK_FN void refill(struct bit_reader *reader)
{
    reader->bits |= (u64)*reader->next++ << reader->held;
    reader->held += 32u;
}

/* count <= 32 */
RK_FN u32 read_bits(struct bit_reader *reader, u32 count)
{
    if (reader->held < count)
        refill(reader);
    u32 value = (u32)(reader->bits & (((u64)1u << count) - 1u));
    reader->bits >>= count;
    reader->held -= count;
    return value;
}

RK_FN struct bit_reader reader_at(RK_GLOBAL const u32 *words, u64 bit)
{
    struct bit_reader reader = {words + (bit >> 5), 0u, 0u};
    (void)read_bits(&reader, (u32)bit % 32u);
    return reader;
}

/* How many ones come before the next zero, which is consumed; gives up beyond `most`. */
RK_FN u32 read_ones(struct bit_reader *reader, u32 most)
{
    u32 ones = 0u, run = 0u, seen = 0u;
    do {
        if (reader->held == 0u)
            refill(reader);
        u32 low = (u32)reader->bits;
        seen = reader->held < 32u ? reader->held : 32u;
        run = rk_ones(low & ~(low + 1u));
        u32 used = run < seen ? run + 1u : seen;
        reader->bits >>= used;
        reader->held -= used;
        ones += run;
    } while (run == seen && ones <= most);
    return ones;
}

/* Where in a chunk the decoder is. */
struct coordinates {
    struct bit_reader indices, values;
    u32 length, count, rice, next; /* next: the lowest index that is still possible */
};

/* The next index; `length` when the chunk is not valid. */
RK_FN u32 read_index(struct coordinates *from)
{
    u32 ones = read_ones(&from->indices, from->length >> from->rice);
    u32 index = from->next + (ones << from->rice | read_bits(&from->indices, from->rice));
    if (ones > from->length >> from->rice || index >= from->length)
        return from->length;
    from->next = index + 1u;
    return index;
}

/* Scales and count: 0 for a chunk that is empty or not valid. */
RK_FN u32 read_head(struct bit_reader *reader, u32 whole, struct value_coder *coder)
{
    u32 scale = read_bits(reader, SCALE_BITS), count = whole;
    if (scale == SCALE_COUNTED) {
        scale = read_bits(reader, SCALE_BITS);
        count = read_bits(reader, COUNT_BITS);
    }
    if (scale == 0u || scale > SCALE_TOP || count > whole)
        return 0u;
    coder->scale = scale;
    coder->second = coder->values == VALUES_TWO ? read_bits(reader, SCALE_BITS) : scale;
    return count;
}

/* The next `count` <= ADD_AT_ONCE coordinates: first all loads, then all stores. */
RK_FN void add_some(struct coordinates *from, struct value_coder coder, u32 count, float factor,
                    RK_GLOBAL float *target)
{
    u32 indices[ADD_AT_ONCE];
    float entries[ADD_AT_ONCE], products[ADD_AT_ONCE];
    RK_UNROLL
    for (u32 a = 0u; a < ADD_AT_ONCE; a++) {
        if (a < count) {
            indices[a] = read_index(from);
            u32 word = read_bits(&from->values, value_bits(coder.values));
            products[a] = flush(RK_MUL(factor, value_of(coder, word)));
            entries[a] = target[indices[a]];
        }
    }
    RK_UNROLL
    for (u32 a = 0u; a < ADD_AT_ONCE; a++) {
        if (a < count)
            target[indices[a]] = flush(flush(entries[a]) + products[a]);
    }
}

/* The values follow the indices: those are read twice, first to find the end of them. */
RK_FN void add_chunk(struct bit_reader reader, u32 length, u32 values, u32 k, float factor,
                     RK_GLOBAL float *target)
{
    struct value_coder coder = {values, 0u, 0u};
    u32 count = read_head(&reader, k < length ? k : length, &coder), index = 0u;
    u32 rice = count > 0u ? rice_bits(length, count) : 0u;
    struct coordinates skipped = {reader, reader, length, count, rice, 0u};
    for (u32 c = 0u; c < count && index < length; c++)
        index = read_index(&skipped);
    if (count == 0u || index >= length)
        return;
    struct coordinates from = {reader, skipped.indices, length, count, rice, 0u};
    for (u32 c = 0u; c < count; c += ADD_AT_ONCE)
        add_some(&from, coder, count - c < ADD_AT_ONCE ? count - c : ADD_AT_ONCE, factor, target);
}

RK_KERNEL void update_add(RK_GLOBAL const u32 *words, RK_GLOBAL const u32 *chunk_offsets_low,
                          RK_GLOBAL const u32 *chunk_offsets_high, u32 n_low, u32 n_high,
                          u32 first_chunk, u32 chunks, u32 values, u32 k, float factor,
                          RK_GLOBAL float *target)
{
    u32 group = RK_GROUP_ID;
    RK_ITEMS(lid) {
        u32 chunk = group * ADD_CHUNKS + lid;
        if (lid < ADD_CHUNKS && chunk < chunks) {
            u64 offset = (u64)chunk_offsets_high[chunk] << 32 | chunk_offsets_low[chunk];
            u32 length = chunk_length(n_low, n_high, first_chunk + chunk);
            add_chunk(reader_at(words, offset), length, values, k, factor,
                      target + (u64)(first_chunk + chunk) * CHUNK);
        }
    }
}
