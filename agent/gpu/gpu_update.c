/* The update code on a device. Surprising: the device leaves every super-chunk at its longest
 * possible place and the host closes the gaps while it copies; that moves a hundredth of the
 * model's bytes and spares a second trip to the device. */
#include "agent/gpu/gpu_update.h"

#include "agent/kernels/kernels.h"
#include "common/base/bytes.h"
#include "common/codec/format.h"

#include <stdlib.h>
#include <string.h>

#define BATCH_SUPERS 16u /* 4096 chunks: the words of one batch take a few megabytes */
#define BATCH_CHUNKS (BATCH_SUPERS * CODEC_SUPER_CHUNK)

struct gpu_update {
    struct gpu *gpu;
    uint64_t n, chunks, supers;
    struct codec_format format;
    uint32_t chunk_stride, slot_stride;                            /* words */
    struct gpu_memory chunk_words, chunk_bits, slots, super_words; /* of one batch */
    uint32_t *host_bits, *host_slots, *host_words;                 /* of all, pinned */
};

static enum status failed(const struct gpu *gpu, enum status status, struct error *err)
{
    return error_set(err, status, "%s",
                     gpu->failure[0] ? gpu->failure : "the device has no memory left");
}

static enum status allocate_all(struct gpu_update *update)
{
    struct gpu *gpu = update->gpu;
    const struct gpu_api *api = gpu->api;
    size_t chunks = (size_t)(update->chunks < BATCH_CHUNKS ? update->chunks : BATCH_CHUNKS);
    size_t supers = (size_t)(update->supers < BATCH_SUPERS ? update->supers : BATCH_SUPERS);
    size_t bits_bytes = (size_t)update->chunks * 4;
    size_t slots_bytes = (size_t)update->supers * update->slot_stride * 4;
    size_t words_bytes = (size_t)update->supers * 4;
    enum status status =
        api->allocate(gpu, chunks * update->chunk_stride * 4, &update->chunk_words);
    if (!status)
        status = api->allocate(gpu, chunks * 4, &update->chunk_bits);
    if (!status)
        status = api->allocate(gpu, supers * update->slot_stride * 4, &update->slots);
    if (!status)
        status = api->allocate(gpu, supers * 4, &update->super_words);
    update->host_bits = api->allocate_host(gpu, bits_bytes);
    update->host_slots = api->allocate_host(gpu, slots_bytes);
    update->host_words = api->allocate_host(gpu, words_bytes);
    if (!status && (!update->host_bits || !update->host_slots || !update->host_words))
        status = STATUS_NO_MEMORY;
    return status;
}

enum status gpu_update_create(struct gpu *gpu, uint64_t n, struct codec_format format,
                              struct gpu_update **ret, struct error *err)
{
    if (!format_is_valid(format) || format.values == CODEC_FP32)
        return error_set(err, STATUS_INVALID, "devices do not make updates of coder %d, k = %u",
                         (int)format.values, format.k);
    struct gpu_update *update = calloc(1, sizeof *update);
    if (!update)
        return error_set(err, STATUS_NO_MEMORY, "no memory for an encoder");
    *update = (struct gpu_update){
        .gpu = gpu,
        .n = n,
        .chunks = format_chunks(n),
        .supers = codec_super_chunks(n),
        .format = format,
        .chunk_stride = kernels_chunk_words_max(format),
        .slot_stride = kernels_super_words_max(format),
    };
    gpu->failure[0] = '\0';
    enum status status = allocate_all(update);
    if (status) {
        gpu_update_free(update);
        return failed(gpu, status, err);
    }
    *ret = update;
    return STATUS_OK;
}

void gpu_update_free(struct gpu_update *update)
{
    if (!update)
        return;
    const struct gpu_api *api = update->gpu->api;
    struct gpu_memory *memories[] = {&update->chunk_words, &update->chunk_bits, &update->slots,
                                     &update->super_words};
    (void)api->wait(update->gpu, GPU_COPY); /* nobody called finish: copies may still come */
    for (size_t i = 0; i < COUNT_OF(memories); i++)
        if (memories[i]->handle)
            api->release(update->gpu, memories[i]);
    api->release_host(update->gpu, update->host_bits);
    api->release_host(update->gpu, update->host_slots);
    api->release_host(update->gpu, update->host_words);
    free(update);
}

/* --- encode ---------------------------------------------------------------------------------- */

#define MEMORY(place)                                                                              \
    {                                                                                              \
        .type = GPU_MEMORY, .memory = (place)                                                      \
    }
#define WORD(value)                                                                                \
    {                                                                                              \
        .type = GPU_U32, .u32 = (uint32_t)(value)                                                  \
    }
#define REAL(value)                                                                                \
    {                                                                                              \
        .type = GPU_FLOAT, .real = (value)                                                         \
    }

static enum status run_batch(struct gpu_update *update, const struct gpu_source *source,
                             uint64_t first_chunk, uint32_t chunks)
{
    struct gpu *gpu = update->gpu;
    const struct gpu_memory *any = &update->chunk_words;
    uint32_t present = (source->residual ? KERNELS_RESIDUAL : 0) |
                       (source->plus ? KERNELS_PLUS : 0) | (source->minus ? KERNELS_MINUS : 0) |
                       (source->add_to ? KERNELS_ADD_TO : 0);
    const struct gpu_argument encode[] = {
        MEMORY(source->residual ? source->residual : any),
        MEMORY(source->plus ? source->plus : any),
        MEMORY(source->minus ? source->minus : any),
        MEMORY(source->add_to ? source->add_to : any),
        REAL(source->decay),
        WORD(present),
        WORD(update->n),
        WORD(update->n >> 32),
        WORD(first_chunk),
        WORD(update->format.values),
        WORD(update->format.k),
        MEMORY(&update->chunk_words),
        WORD(update->chunk_stride),
        MEMORY(&update->chunk_bits),
    };
    const struct gpu_argument join[] = {
        MEMORY(&update->chunk_words), WORD(update->chunk_stride),
        MEMORY(&update->chunk_bits),  WORD(chunks),
        MEMORY(&update->slots),       WORD(update->slot_stride),
        MEMORY(&update->super_words),
    };
    uint64_t first_super = first_chunk / CODEC_SUPER_CHUNK;
    uint32_t supers = kernels_join_groups(chunks);
    /* The batch before wrote the same memory: not before that was copied. At the beginning and not
     * at the end, so that what training puts here after the last batch waits for no copy. */
    enum status status = gpu->api->follow(gpu, GPU_COMPUTE, GPU_COPY);
    if (!status)
        status = gpu->api->launch(gpu, GPU_UPDATE_ENCODE, kernels_encode_groups(chunks), encode,
                                  COUNT_OF(encode));
    if (!status)
        status = gpu->api->launch(gpu, GPU_UPDATE_JOIN, supers, join, COUNT_OF(join));
    if (!status)
        status = gpu->api->follow(gpu, GPU_COPY, GPU_COMPUTE);
    if (!status)
        status = gpu->api->download(gpu, GPU_COPY, &update->chunk_bits, 0,
                                    update->host_bits + first_chunk, (size_t)chunks * 4);
    if (!status)
        status = gpu->api->download(gpu, GPU_COPY, &update->super_words, 0,
                                    update->host_words + first_super, (size_t)supers * 4);
    if (!status)
        status = gpu->api->download(gpu, GPU_COPY, &update->slots, 0,
                                    update->host_slots + first_super * update->slot_stride,
                                    (size_t)supers * update->slot_stride * 4);
    return status;
}

enum status gpu_update_begin(struct gpu_update *update, const struct gpu_source *source,
                             struct error *err)
{
    if (source->residual && !(source->decay >= 0.0f && source->decay <= 1.0f))
        return error_set(err, STATUS_INVALID, "decay %g is not between 0 and 1",
                         (double)source->decay);
    update->gpu->failure[0] = '\0';
    for (uint64_t first = 0; first < update->chunks; first += BATCH_CHUNKS) {
        uint64_t left = update->chunks - first;
        enum status status =
            run_batch(update, source, first, (uint32_t)(left < BATCH_CHUNKS ? left : BATCH_CHUNKS));
        if (status)
            return failed(update->gpu, status, err);
    }
    return STATUS_OK;
}

static bool all_finite(const struct gpu_update *update, uint64_t *ret_position)
{
    for (uint64_t chunk = 0; chunk < update->chunks; chunk++) {
        uint32_t bits = update->host_bits[chunk];
        if (bits & KERNELS_NOT_FINITE) {
            *ret_position = chunk * CODEC_CHUNK + (bits & (CODEC_CHUNK - 1));
            return false;
        }
    }
    return true;
}

/* A device that lies about its lengths must not make us write beyond the payload: what a
 * super-chunk takes follows from its chunks, and none takes more than the format allows. */
static bool lengths_are_possible(const struct gpu_update *update, uint64_t *ret_words)
{
    uint64_t words = 0;
    for (uint64_t s = 0; s < update->supers; s++) {
        uint64_t chunk = s * CODEC_SUPER_CHUNK, left = update->chunks - chunk, bits = 0;
        uint64_t end = chunk + (left < CODEC_SUPER_CHUNK ? left : CODEC_SUPER_CHUNK);
        for (; chunk < end; chunk++) {
            if (update->host_bits[chunk] > 32 * update->chunk_stride)
                return false;
            bits += update->host_bits[chunk];
        }
        if (update->host_words[s] != (bits + 31) / 32 ||
            update->host_words[s] > update->slot_stride)
            return false;
        words += update->host_words[s];
    }
    *ret_words = words;
    return true;
}

enum status gpu_update_finish(struct gpu_update *update, struct buffer *ret, uint64_t *ret_position,
                              struct error *err)
{
    uint64_t position;
    enum status status = update->gpu->api->wait(update->gpu, GPU_COPY);
    if (status)
        return failed(update->gpu, status, err);
    if (!all_finite(update, &position)) {
        if (ret_position)
            *ret_position = position;
        return error_set(err, STATUS_NOT_FINITE, "parameter %llu of the update is not finite",
                         (unsigned long long)position);
    }
    uint64_t all_words;
    if (!lengths_are_possible(update, &all_words))
        return error_set(err, STATUS_CORRUPT, "the device made an impossible update");
    size_t bytes = FORMAT_HEADER_BYTES + (size_t)update->supers * 8 + (size_t)all_words * 4;
    status = buffer_reserve(ret, bytes);
    if (status)
        return error_set(err, status, "no room for an update of %llu parameters",
                         (unsigned long long)update->n);
    uint8_t *out = ret->data + ret->bytes, *table = out + FORMAT_HEADER_BYTES;
    uint8_t *body = table + update->supers * 8;
    uint64_t offset = 0;
    for (uint64_t s = 0; s < update->supers; s++) {
        uint32_t words = update->host_words[s];
        store_u64(table + s * 8, offset);
        memcpy(body + offset, update->host_slots + s * update->slot_stride, (size_t)words * 4);
        offset += (uint64_t)words * 4;
    }
    struct format_header header = {
        .n = update->n, .body_bytes = update->supers * 8 + offset, .format = update->format};
    format_header_write(&header, out);
    ret->bytes += bytes;
    return STATUS_OK;
}

/* --- add ------------------------------------------------------------------------------------- */

/* Where every chunk begins in the body, in bits: 2 × chunks words, the low halves first. */
static void find_offsets(const struct codec_payload *payload, uint64_t chunks, uint32_t *ret)
{
    const uint8_t *body = payload->data + FORMAT_HEADER_BYTES + codec_super_chunks(payload->n) * 8;
    static _Thread_local struct codec_chunk chunk;
    for (uint64_t s = 0; s < codec_super_chunks(payload->n); s++) {
        struct codec_reader reader;
        codec_reader_init(&reader, payload, s);
        uint64_t first_bit = (uint64_t)(reader.start - body) * 8;
        do {
            if (reader.chunk >= reader.chunk_end)
                break;
            uint64_t at = first_bit + reader.bit;
            ret[reader.chunk] = (uint32_t)at;
            ret[chunks + reader.chunk] = (uint32_t)(at >> 32);
        } while (codec_reader_next(&reader, &chunk));
    }
}

struct addition {
    struct gpu_memory words, low, high;
    uint32_t *offsets;
};

static enum status put_payload(struct gpu *gpu, const struct codec_payload *payload,
                               uint64_t chunks, struct addition *addition)
{
    const struct gpu_api *api = gpu->api;
    size_t table_bytes = (size_t)codec_super_chunks(payload->n) * 8;
    const uint8_t *body = payload->data + FORMAT_HEADER_BYTES + table_bytes;
    size_t body_bytes = payload->bytes - FORMAT_HEADER_BYTES - table_bytes;
    enum status status = api->allocate(gpu, body_bytes, &addition->words);
    if (!status)
        status = api->allocate(gpu, (size_t)chunks * 4, &addition->low);
    if (!status)
        status = api->allocate(gpu, (size_t)chunks * 4, &addition->high);
    if (!status)
        status = api->upload(gpu, GPU_COMPUTE, &addition->words, 0, body, body_bytes);
    if (!status)
        status =
            api->upload(gpu, GPU_COMPUTE, &addition->low, 0, addition->offsets, (size_t)chunks * 4);
    if (!status)
        status = api->upload(gpu, GPU_COMPUTE, &addition->high, 0, addition->offsets + chunks,
                             (size_t)chunks * 4);
    return status;
}

enum status gpu_update_add(struct gpu *gpu, const struct codec_payload *payload, float factor,
                           const struct gpu_memory *target, struct error *err)
{
    uint64_t chunks = format_chunks(payload->n);
    struct addition addition = {.offsets = malloc((size_t)chunks * 8 + 1)};
    if (payload->format.values == CODEC_FP32 || chunks > UINT32_MAX || !addition.offsets) {
        free(addition.offsets);
        return error_set(err, STATUS_UNSUPPORTED, "devices do not add updates of this kind");
    }
    gpu->failure[0] = '\0';
    find_offsets(payload, chunks, addition.offsets);
    enum status status = put_payload(gpu, payload, chunks, &addition);
    const struct gpu_argument arguments[] = {
        MEMORY(&addition.words),
        MEMORY(&addition.low),
        MEMORY(&addition.high),
        WORD(payload->n),
        WORD(payload->n >> 32),
        WORD(0),
        WORD(chunks),
        WORD(payload->format.values),
        WORD(payload->format.k),
        REAL(factor),
        MEMORY(target),
    };
    if (!status)
        status = gpu->api->launch(gpu, GPU_UPDATE_ADD, kernels_add_groups((uint32_t)chunks),
                                  arguments, COUNT_OF(arguments));
    enum status waited = gpu->api->wait(gpu, GPU_COMPUTE);
    struct gpu_memory *memories[] = {&addition.words, &addition.low, &addition.high};
    for (size_t i = 0; i < COUNT_OF(memories); i++)
        if (memories[i]->handle)
            gpu->api->release(gpu, memories[i]);
    free(addition.offsets);
    status = status ? status : waited;
    return status ? failed(gpu, status, err) : STATUS_OK;
}
