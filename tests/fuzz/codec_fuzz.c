/* libFuzzer target of the update code's decoder. The input is a payload: it is first taken as it
 * is, then with its length field and checksum made right, so that the fuzzer gets past them, and
 * with n from its header, within bounds. What opens must decode within the target, to as many
 * finite coordinates as the check counted, the same by every way of decoding; what does not open
 * must say why and leave the target alone. */
#include "common/base/bytes.h"
#include "common/base/checksum.h"
#include "common/codec/codec.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define HEADER_BYTES 40u
#define N_OF_THE_BAD_FILES 10000u
#define N_WITH_TARGET (5 * CODEC_CHUNK)
#define SUPER (CODEC_SUPER_CHUNK * CODEC_CHUNK)
#define INPUT_BYTES_MAX (1u << 20)

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t bytes);

static void expect(bool holds)
{
    if (!holds)
        abort();
}

/* A few chunks, or just more than one super-chunk (then the table matters): what lies between takes
 * a hundred times as long as the first and shows nothing more. */
static uint64_t within_bounds(uint64_t n)
{
    return n <= N_WITH_TARGET || (n > SUPER && n <= SUPER + 5) ? n : n % N_OF_THE_BAD_FILES;
}

static bool is_flushed(float x)
{
    return fpclassify(x) == FP_NORMAL || (x == 0 && !signbit(x));
}

/* Puts what the readers give into ret[n], or nowhere. */
static void read_all(const struct codec_payload *payload, float *ret)
{
    static struct codec_chunk chunk;
    uint64_t coordinates = 0, end = 0;
    bool all = payload->format.values == CODEC_FP32;
    for (uint64_t s = 0; s < codec_super_chunks(payload->n); s++) {
        struct codec_reader reader;
        codec_reader_init(&reader, payload, s);
        while (codec_reader_next(&reader, &chunk)) {
            expect(chunk.first == end && chunk.count <= chunk.length);
            expect(all ? chunk.count == chunk.length : chunk.count <= payload->format.k);
            end = chunk.first + chunk.length;
            expect(end <= payload->n);
            for (uint32_t i = 0; i < chunk.count; i++) {
                expect(chunk.indices[i] < chunk.length && is_flushed(chunk.values[i]));
                expect(i == 0 || chunk.indices[i] > chunk.indices[i - 1]);
                expect(all || chunk.values[i] != 0);
                if (ret)
                    ret[chunk.first + chunk.indices[i]] = chunk.values[i];
            }
            coordinates += chunk.count;
        }
    }
    expect(end == payload->n && coordinates == payload->coordinates);
}

static void open_and_read(const uint8_t *data, size_t bytes, uint64_t n)
{
    struct codec_payload payload = {0};
    struct error err = {0};
    if (codec_open(data, bytes, n, NULL, &payload, &err) == STATUS_OK) {
        expect(payload.bytes == bytes && payload.n == n);
        read_all(&payload, NULL);
    } else {
        expect(payload.data == NULL && strncmp(err.text, "update code refused: ", 21) == 0);
    }
}

static void add_and_compare(const uint8_t *data, size_t bytes, uint64_t n)
{
    struct codec_payload payload;
    float *target = calloc(n + (n == 0), sizeof *target);
    float *read = calloc(n + (n == 0), sizeof *read);
    expect(target != NULL && read != NULL);
    enum status status = codec_decode_add(data, bytes, 1.0f, target, n, NULL);
    if (status == STATUS_OK) {
        expect(codec_open(data, bytes, n, NULL, &payload, NULL) == STATUS_OK);
        read_all(&payload, read);
        expect(memcmp(read, target, n * sizeof *read) == 0);
        codec_add(&payload, -1.0f, target, NULL);
    }
    expect(status == STATUS_OK || status == STATUS_CORRUPT);
    for (uint64_t i = 0; i < n; i++)
        expect(target[i] == 0.0f);
    free(read);
    free(target);
}

static void take(const uint8_t *data, size_t bytes, uint64_t n)
{
    open_and_read(data, bytes, n);
    if (n <= N_WITH_TARGET) /* longer targets only cost time */
        add_and_compare(data, bytes, n);
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t bytes)
{
    if (bytes > INPUT_BYTES_MAX)
        return 0;
    uint8_t *data = malloc(bytes + (bytes == 0)); /* exact, for the sanitizer */
    expect(data != NULL);
    if (bytes > 0)
        memcpy(data, input, bytes);
    open_and_read(data, bytes, N_OF_THE_BAD_FILES);
    if (bytes >= HEADER_BYTES) {
        uint64_t n = within_bounds(load_u64(data + 8));
        store_u64(data + 8, n);
        store_u64(data + 24, bytes - HEADER_BYTES);
        store_u64(data + 32, checksum_xxh3_seeded(data + HEADER_BYTES, bytes - HEADER_BYTES,
                                                  checksum_xxh3(data, 32)));
        take(data, bytes, n);
    }
    free(data);
    return 0;
}
