/* libcurl download with resume. Download thread. Surprising decision: nothing is written before the
 * response's status, length and range have been checked, so an error page (a 416, a captive
 * portal's HTML with 200) never reaches the file; a response without a length is refused. What one
 * source left in the .part file the next one continues: the SHA-256 decides in the end, and only a
 * source that sent all of a wrong file is known to be at fault. */
#include "agent/session/download.h"

#include "common/base/bytes.h"
#include "common/base/checksum.h"
#include "common/base/clock.h"
#include "common/base/file.h"

#include <curl/curl.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define CONNECT_TIMEOUT_SECONDS 20l
#define STALL_SECONDS 30u
#define MIRROR_BYTES_PER_S_MIN 500 /* slower for STALL_SECONDS, and the next source is asked */
#define MIRROR_FAILURES_MAX 3
#define READ_BYTES_MIN 1024
#define READ_BYTES_MAX 16384
#define READS_PER_SECOND 400 /* libcurl takes up to 100 at once, whatever the cap says */
#define PROGRESS_US 250000
#define ETAG_BYTES 96

struct transfer {
    const struct download *download;
    struct download_history *history;
    const struct download_source *source;
    bool is_mirror;
    struct url url;
    struct proxy proxy;
    char details[CURL_ERROR_SIZE];
    CURL *curl;
    int fd;
    uint64_t offset;   /* where this attempt starts */
    uint64_t position; /* next byte of the file */
    bool checked;      /* the response's head is what we asked for */
    bool restart;      /* the .part file is of no use */
    bool mixed;        /* wrong, but not all of it came from this source */
    char range[96];    /* Content-Range */
    char length[24];   /* Content-Length */
    char type[64];     /* Content-Type */
    char etag[ETAG_BYTES];
    char part_etag[ETAG_BYTES]; /* of what the .part file holds; empty: not known */
    struct error *err;
    enum status status;
    int64_t progress_us;
};

static bool file_has_sha256(int fd, uint64_t bytes, const uint8_t sha256[32])
{
    struct sha256 sha;
    sha256_init(&sha);
    uint8_t data[65536], got[SHA256_BYTES];
    for (uint64_t at = 0; at < bytes;) {
        size_t piece = bytes - at < sizeof data ? (size_t)(bytes - at) : sizeof data;
        if (file_pread_all(fd, data, piece, at, NULL))
            return false;
        sha256_update(&sha, data, piece);
        at += piece;
    }
    sha256_final(&sha, got);
    return memcmp(got, sha256, sizeof got) == 0;
}

bool download_is_complete(const char *path, uint64_t bytes, const uint8_t sha256[32])
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    struct stat info;
    bool ok = fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && (uint64_t)info.st_size == bytes &&
              file_has_sha256(fd, bytes, sha256);
    close(fd);
    return ok;
}

/* --- callbacks of libcurl --------------------------------------------------------------------- */

static void keep_header(const char *line, size_t bytes, const char *name, char *ret,
                        size_t ret_bytes)
{
    size_t name_bytes = strlen(name);
    if (bytes <= name_bytes || strncasecmp(line, name, name_bytes) != 0)
        return;
    line += name_bytes;
    bytes -= name_bytes;
    while (bytes > 0 && (*line == ' ' || *line == '\t')) {
        line++;
        bytes--;
    }
    while (bytes > 0 && (line[bytes - 1] == '\r' || line[bytes - 1] == '\n'))
        bytes--;
    snprintf(ret, ret_bytes, "%.*s", (int)(bytes < ret_bytes ? bytes : ret_bytes - 1), line);
}

static size_t on_header(char *line, size_t size, size_t count, void *user)
{
    struct transfer *transfer = user;
    size_t bytes = size * count;
    if (bytes > 5 && strncmp(line, "HTTP/", 5) == 0)
        transfer->range[0] = transfer->length[0] = transfer->type[0] = transfer->etag[0] = '\0';
    keep_header(line, bytes, "Content-Range:", transfer->range, sizeof transfer->range);
    keep_header(line, bytes, "Content-Length:", transfer->length, sizeof transfer->length);
    keep_header(line, bytes, "ETag:", transfer->etag, sizeof transfer->etag);
    keep_header(line, bytes, "Content-Type:", transfer->type, sizeof transfer->type);
    return bytes;
}

static enum status refuse(struct transfer *transfer, enum status status, const char *what)
{
    transfer->status =
        error_set(transfer->err, status, "download of %.120s: %s", transfer->source->url, what);
    return status;
}

static enum status check_http_status(struct transfer *transfer, long code)
{
    char text[URL_BASE_BYTES + 64];
    struct error cause;
    bool perhaps_the_proxy = transfer->proxy.used && !transfer->url.tls;
    snprintf(text, sizeof text, "the server%s%s answered %ld",
             perhaps_the_proxy ? ", or the proxy " : "",
             perhaps_the_proxy ? transfer->proxy.name : "", code);
    switch (code) {
    case 200:
    case 206:
        return STATUS_OK;
    case 407:
        if (!transfer->proxy.used)
            return refuse(transfer, STATUS_UNAVAILABLE, text);
        route_explain_refusal(code, &transfer->proxy, &cause);
        return refuse(transfer, cause.status, cause.text);
    case 401:
    case 403:
        return refuse(transfer, STATUS_DENIED, text);
    case 404:
    case 410:
        return refuse(transfer, STATUS_NOT_FOUND, text);
    case 416:
        transfer->restart = true;
        return refuse(transfer, STATUS_TRUNCATED, text);
    default:
        return refuse(transfer, STATUS_UNAVAILABLE, text);
    }
}

/* --- the ETag of the .part file --------------------------------------------------------------- */

static void read_etag(struct transfer *transfer)
{
    int fd = open(transfer->download->etag_path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    ssize_t bytes = read(fd, transfer->part_etag, sizeof transfer->part_etag - 1);
    transfer->part_etag[bytes > 0 ? bytes : 0] = '\0';
    close(fd);
}

/* After the .part file was emptied and before anything is written to it: a process that is killed
 * in between leaves nothing that could be continued with another file's rest. */
static enum status keep_etag(struct transfer *transfer)
{
    text_copy(transfer->part_etag, sizeof transfer->part_etag, transfer->etag);
    transfer->status = file_write_atomic(transfer->download->etag_path, transfer->part_etag,
                                         strlen(transfer->part_etag), 0600, transfer->err);
    return transfer->status;
}

/* --- the response's head ---------------------------------------------------------------------- */

/* Called once, before the first byte of the body is written. */
static enum status check_head(struct transfer *transfer)
{
    long code = 0;
    curl_easy_getinfo(transfer->curl, CURLINFO_RESPONSE_CODE, &code);
    enum status status = check_http_status(transfer, code);
    if (status)
        return status;
    if (strncasecmp(transfer->type, "text/html", 9) == 0)
        return refuse(transfer, STATUS_UNAVAILABLE, "a web page came instead of the file");

    uint64_t bytes = transfer->download->bytes;
    unsigned long long first, last, total;
    if (code == 206) {
        if (sscanf(transfer->range, "bytes %llu-%llu/%llu", &first, &last, &total) != 3 ||
            first != transfer->offset || last + 1 != bytes || total != bytes) {
            transfer->restart = true;
            return refuse(transfer, STATUS_CORRUPT, "the range is not the one asked for");
        }
        if (transfer->download->etag_path && strcmp(transfer->etag, transfer->part_etag) != 0) {
            transfer->restart = true;
            return refuse(transfer, STATUS_CORRUPT, "the range is of another file than was begun");
        }
    } else {
        char *end;
        total = strtoull(transfer->length, &end, 10);
        if (end == transfer->length || *end != '\0' || total != bytes)
            return refuse(transfer, STATUS_CORRUPT, "its length is not the announced one");
        transfer->offset = transfer->position = 0; /* the server does not resume: start again */
        if (ftruncate(transfer->fd, 0) < 0)
            return refuse(transfer, STATUS_IO, "cannot empty the partial file");
        if (transfer->download->etag_path && keep_etag(transfer))
            return transfer->status;
    }
    transfer->checked = true;
    return STATUS_OK;
}

static size_t on_body(char *data, size_t size, size_t count, void *user)
{
    struct transfer *transfer = user;
    size_t bytes = size * count;
    if (!transfer->checked && check_head(transfer))
        return 0;
    if (bytes > transfer->download->bytes - transfer->position) {
        transfer->restart = true;
        refuse(transfer, STATUS_CORRUPT, "more bytes came than announced");
        return 0;
    }
    transfer->status =
        file_pwrite_all(transfer->fd, data, bytes, transfer->position, transfer->err);
    if (transfer->status)
        return 0;
    transfer->position += bytes;
    return bytes;
}

static void report_progress(struct transfer *transfer, uint64_t done_bytes)
{
    const struct download *download = transfer->download;
    if (done_bytes > transfer->history->reported_bytes)
        transfer->history->reported_bytes = done_bytes;
    if (download->progress)
        download->progress(download->user, transfer->history->reported_bytes, download->bytes);
}

static int on_progress(void *user, curl_off_t down_total, curl_off_t down_now, curl_off_t up_total,
                       curl_off_t up_now)
{
    (void)down_total, (void)down_now, (void)up_total, (void)up_now;
    struct transfer *transfer = user;
    const struct download *download = transfer->download;
    if (download->is_cancelled && download->is_cancelled(download->user)) {
        refuse(transfer, STATUS_CLOSED, "cancelled");
        return 1;
    }
    int64_t now_us = clock_monotonic_us();
    if (now_us - transfer->progress_us >= PROGRESS_US) {
        transfer->progress_us = now_us;
        report_progress(transfer, transfer->position);
    }
    return 0;
}

/* --- one source ------------------------------------------------------------------------------- */

static bool set_limits(const struct transfer *transfer)
{
    CURL *curl = transfer->curl;
    const struct download *download = transfer->download;
    uint64_t cap = download->bytes_per_s_max, piece = cap / READS_PER_SECOND;
    long least = transfer->is_mirror && (cap == 0 || cap >= 4 * MIRROR_BYTES_PER_S_MIN)
                     ? MIRROR_BYTES_PER_S_MIN
                     : 1;
    long stall_s = (long)(download->stall_s > 0 ? download->stall_s : STALL_SECONDS);
    if (curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT, CONNECT_TIMEOUT_SECONDS) ||
        curl_easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, least) ||
        curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME, stall_s))
        return false;
    if (cap == 0)
        return true;
    long read_bytes = piece < READ_BYTES_MIN   ? READ_BYTES_MIN
                      : piece > READ_BYTES_MAX ? READ_BYTES_MAX
                                               : (long)piece;
    return !curl_easy_setopt(curl, CURLOPT_BUFFERSIZE, read_bytes) &&
           !curl_easy_setopt(curl, CURLOPT_MAX_RECV_SPEED_LARGE, (curl_off_t)cap);
}

static enum status set_options(struct transfer *transfer, struct curl_slist *headers)
{
    CURL *curl = transfer->curl;
    struct error cause = {0};
    if (url_parse_file(transfer->source->url, &transfer->url, &cause) ||
        route_apply(transfer->download->route, &transfer->url, curl, &transfer->proxy, &cause))
        return refuse(transfer, cause.status, cause.text);
    bool failed = curl_easy_setopt(curl, CURLOPT_URL, transfer->source->url) ||
                  curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https") ||
                  curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1l) ||
                  curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 0l) ||
                  curl_easy_setopt(curl, CURLOPT_SUPPRESS_CONNECT_HEADERS, 1l) ||
                  curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, transfer->details) ||
                  curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers) ||
                  curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, on_header) ||
                  curl_easy_setopt(curl, CURLOPT_HEADERDATA, transfer) ||
                  curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_body) ||
                  curl_easy_setopt(curl, CURLOPT_WRITEDATA, transfer) ||
                  curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, on_progress) ||
                  curl_easy_setopt(curl, CURLOPT_XFERINFODATA, transfer) ||
                  curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0l) || !set_limits(transfer);
    char range[32];
    if (!failed && transfer->offset > 0) {
        snprintf(range, sizeof range, "%llu-", (unsigned long long)transfer->offset);
        failed = curl_easy_setopt(curl, CURLOPT_RANGE, range);
    }
    return failed ? refuse(transfer, STATUS_NO_MEMORY, "cannot prepare the request") : STATUS_OK;
}

static enum status explain(struct transfer *transfer, CURLcode code)
{
    if (transfer->status)
        return transfer->status;
    long answered = 0;
    curl_easy_getinfo(transfer->curl, CURLINFO_RESPONSE_CODE, &answered);
    bool ended = code == CURLE_OK || code == CURLE_PARTIAL_FILE || code == CURLE_RECV_ERROR ||
                 code == CURLE_GOT_NOTHING;
    if (ended && answered > 0 && !transfer->checked && check_head(transfer)) /* no body came */
        return transfer->status;
    if (ended && transfer->checked && transfer->position < transfer->download->bytes)
        return refuse(transfer, STATUS_TRUNCATED, "the connection ended too early");
    if (code == CURLE_OK)
        return STATUS_OK;
    struct error cause = {0};
    if (code == CURLE_OPERATION_TIMEDOUT && transfer->checked)
        return refuse(transfer, STATUS_TIMEOUT, "it stalled; hardly a byte came any more");
    route_explain(transfer->curl, code, transfer->details, &transfer->url, &transfer->proxy,
                  &cause);
    return refuse(transfer, cause.status, cause.text);
}

static enum status fetch(struct transfer *transfer)
{
    const struct download *download = transfer->download;
    char bearer[256];
    snprintf(bearer, sizeof bearer, "Authorization: Bearer %s",
             transfer->source->token ? transfer->source->token : "");
    struct curl_slist *headers = curl_slist_append(NULL, "Accept-Encoding: identity");
    bool failed = !headers || (transfer->source->token && !curl_slist_append(headers, bearer));
    explicit_bzero(bearer, sizeof bearer);
    if (!failed && download->etag_path && transfer->offset > 0) {
        char unchanged[ETAG_BYTES + 16];
        snprintf(unchanged, sizeof unchanged, "If-Range: %s", transfer->part_etag);
        failed = !curl_slist_append(headers, unchanged);
    }
    transfer->curl = curl_easy_init();
    if (!transfer->curl || failed)
        refuse(transfer, STATUS_NO_MEMORY, "no memory");
    else if (!set_options(transfer, headers))
        explain(transfer, curl_easy_perform(transfer->curl));
    curl_easy_cleanup(transfer->curl);
    curl_slist_free_all(headers);
    return transfer->status;
}

static enum status finish(struct transfer *transfer)
{
    const struct download *download = transfer->download;
    if (download->sha256 && !file_has_sha256(transfer->fd, download->bytes, download->sha256)) {
        transfer->restart = true;
        transfer->mixed = transfer->offset > 0;
        return refuse(transfer, STATUS_CORRUPT, "its SHA-256 is not the announced one");
    }
    if (fdatasync(transfer->fd) < 0)
        return error_set_errno(transfer->err, errno, "cannot write %s to disk",
                               download->part_path);
    if (rename(download->part_path, download->path) < 0)
        return error_set_errno(transfer->err, errno, "cannot rename %s", download->part_path);
    report_progress(transfer, download->bytes);
    return STATUS_OK;
}

static unsigned long long megabytes(uint64_t bytes)
{
    return (bytes + 999999) / 1000000;
}

static enum status check_space(struct transfer *transfer)
{
    const struct download *download = transfer->download;
    struct statvfs disk;
    if (fstatvfs(transfer->fd, &disk) < 0)
        return STATUS_OK; /* the write will tell */
    uint64_t missing = download->bytes - transfer->offset;
    uint64_t available = (uint64_t)disk.f_bavail * disk.f_frsize;
    if (available >= DOWNLOAD_SPARE_BYTES && available - DOWNLOAD_SPARE_BYTES >= missing)
        return STATUS_OK;
    return error_set(transfer->err, STATUS_NO_SPACE,
                     "no room for %.140s: %llu MB are needed (%llu MB of them stay free), but only "
                     "%llu MB are free; make room or choose another --state-dir",
                     download->path, megabytes(missing + DOWNLOAD_SPARE_BYTES),
                     megabytes(DOWNLOAD_SPARE_BYTES), (unsigned long long)(available / 1000000));
}

/* Where this attempt starts; what is in the .part file and of no use goes. */
static enum status find_offset(struct transfer *transfer)
{
    const struct download *download = transfer->download;
    struct stat info;
    if (fstat(transfer->fd, &info) < 0)
        return error_set_errno(transfer->err, errno, "cannot read the size of %s",
                               download->part_path);
    if (download->etag_path)
        read_etag(transfer);
    if ((uint64_t)info.st_size <= download->bytes &&
        (!download->etag_path || transfer->part_etag[0] != '\0'))
        transfer->offset = (uint64_t)info.st_size;
    else if (ftruncate(transfer->fd, 0) < 0)
        return error_set_errno(transfer->err, errno, "cannot empty %s", download->part_path);
    transfer->position = transfer->offset;
    return STATUS_OK;
}

static enum status ask_source(struct transfer *transfer)
{
    const struct download *download = transfer->download;
    transfer->fd = open(download->part_path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (transfer->fd < 0)
        return error_set_errno(transfer->err, errno, "cannot create %s", download->part_path);
    enum status status = find_offset(transfer);
    if (!status && transfer->position < download->bytes) {
        status = check_space(transfer);
        if (!status)
            status = fetch(transfer);
    }
    if (!status)
        status = finish(transfer);
    if (transfer->restart && ftruncate(transfer->fd, 0) < 0)
        unlink(download->part_path);
    close(transfer->fd);
    return status;
}

/* --- all sources ------------------------------------------------------------------------------ */

/* SIZE_MAX: the coordinator's turn has come. */
static size_t pick_mirror(const struct download_history *history, size_t mirrors)
{
    unsigned failures_max = mirrors > MIRROR_FAILURES_MAX ? (unsigned)mirrors : MIRROR_FAILURES_MAX;
    if (history->mirror_failures >= failures_max)
        return SIZE_MAX;
    for (size_t i = 0; i < mirrors; i++) {
        size_t mirror = (history->next_mirror + i) % mirrors;
        if (!(history->unfit >> mirror & 1))
            return mirror;
    }
    return SIZE_MAX;
}

/* Whether another source may do better: not when it is this machine that fails. */
static bool is_the_sources_fault(enum status status)
{
    return status == STATUS_UNAVAILABLE || status == STATUS_TIMEOUT || status == STATUS_TRUNCATED ||
           status == STATUS_CORRUPT || status == STATUS_NOT_FOUND || status == STATUS_DENIED ||
           status == STATUS_INVALID;
}

static void note_failure(struct download_history *history, size_t mirror, enum status status,
                         bool mixed)
{
    history->mirror_failures++;
    history->next_mirror = mirror + 1;
    if (status == STATUS_NOT_FOUND || status == STATUS_DENIED || status == STATUS_INVALID ||
        (status == STATUS_CORRUPT && !mixed))
        history->unfit |= 1u << mirror;
}

enum status download_run(const struct download *download, struct error *err)
{
    struct download_history none = {0};
    struct download_history *history = download->history ? download->history : &none;
    if (download->source_count == 0 || download->source_count > DOWNLOAD_SOURCES_MAX ||
        (download->etag_path && download->source_count > 1))
        return error_set(err, STATUS_INVALID, "a download needs 1 to %d sources",
                         DOWNLOAD_SOURCES_MAX);
    size_t coordinator = download->source_count - 1, mirror;
    struct error cause = {0};
    while ((mirror = pick_mirror(history, coordinator)) != SIZE_MAX) {
        struct transfer transfer = {.download = download,
                                    .history = history,
                                    .source = &download->sources[mirror],
                                    .is_mirror = true,
                                    .err = &cause};
        enum status status = ask_source(&transfer);
        if (!is_the_sources_fault(status))
            return status ? error_set(err, status, "%s", cause.text) : STATUS_OK;
        note_failure(history, mirror, status, transfer.mixed);
        if (download->mirror_failed)
            download->mirror_failed(download->user, cause.text);
    }
    struct transfer transfer = {.download = download,
                                .history = history,
                                .source = &download->sources[coordinator],
                                .err = err};
    enum status status = ask_source(&transfer);
    if (status == STATUS_UNAVAILABLE || status == STATUS_TIMEOUT)
        history->mirror_failures = 0; /* perhaps it was this PC's own connection */
    return status;
}
