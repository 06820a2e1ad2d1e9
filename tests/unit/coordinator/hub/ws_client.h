/* A small blocking WebSocket client for the hub's tests: handshake, masked frames, whole messages.
 * It can also misbehave on purpose: raw bytes, unmasked frames, never reading. Every receive gives
 * up after GUARD_S, so that a broken hub fails a test instead of hanging it. */
#ifndef RAVEN_TESTS_WS_CLIENT_H
#define RAVEN_TESTS_WS_CLIENT_H

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define GUARD_S 30
#define WS_TEXT 1
#define WS_BINARY 2
#define WS_CLOSE 8
#define WS_PING 9
#define WS_PONG 10
#define WS_MESSAGE_BYTES_MAX (4u * 1024 * 1024)

struct ws_client {
    int fd;
    bool is_mute;  /* does not answer pings */
    uint8_t *data; /* the last message, NUL-terminated */
    size_t bytes;
    int opcode; /* of the last message */
    unsigned fragment_count;
    char answer[2048]; /* to the handshake: its whole head */
};

static inline bool ws_send_all(struct ws_client *client, const void *data, size_t bytes)
{
    const uint8_t *next = data;
    while (bytes > 0) {
        ssize_t sent = send(client->fd, next, bytes, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent <= 0)
            return false;
        next += sent;
        bytes -= (size_t)sent;
    }
    return true;
}

static inline bool ws_receive_all(struct ws_client *client, void *data, size_t bytes)
{
    uint8_t *next = data;
    while (bytes > 0) {
        ssize_t received = recv(client->fd, next, bytes, 0);
        if (received < 0 && errno == EINTR)
            continue;
        if (received <= 0)
            return false;
        next += received;
        bytes -= (size_t)received;
    }
    return true;
}

/* receive_bytes: size of the kernel's receive buffer, 0: as usual. */
static inline bool ws_connect(struct ws_client *client, uint16_t port, int receive_bytes)
{
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct timeval guard = {.tv_sec = GUARD_S};
    *client = (struct ws_client){.fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    if (receive_bytes)
        setsockopt(client->fd, SOL_SOCKET, SO_RCVBUF, &receive_bytes, sizeof receive_bytes);
    setsockopt(client->fd, SOL_SOCKET, SO_RCVTIMEO, &guard, sizeof guard);
    return connect(client->fd, (const struct sockaddr *)&address, sizeof address) == 0;
}

/* Sends the request; subprotocol and headers ("Name: value\r\n…") may be NULL. Returns the status
 * of the answer, 0 when the connection was closed without one. */
static inline int ws_handshake(struct ws_client *client, const char *path, const char *subprotocol,
                               const char *headers)
{
    char text[8192];
    int bytes =
        snprintf(text, sizeof text,
                 "GET %s HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\n"
                 "Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
                 "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n%s%s%s%s\r\n",
                 path, subprotocol ? "Sec-WebSocket-Protocol: " : "",
                 subprotocol ? subprotocol : "", subprotocol ? "\r\n" : "", headers ? headers : "");
    if (!ws_send_all(client, text, (size_t)bytes))
        return 0;
    size_t count = 0;
    while (count < 4 || memcmp(text + count - 4, "\r\n\r\n", 4) != 0) {
        if (count == sizeof text - 1 || !ws_receive_all(client, text + count, 1))
            return 0;
        count++;
    }
    text[count] = '\0';
    memcpy(client->answer, text, count < sizeof client->answer ? count + 1 : 0);
    int status = 0;
    return sscanf(text, "HTTP/1.1 %d", &status) == 1 ? status : 0;
}

/* One frame; opcode with or without FIN (0x80). */
static inline bool ws_send_frame(struct ws_client *client, int first_byte, bool is_masked,
                                 const void *data, size_t bytes)
{
    static const uint8_t mask[4] = {0x5a, 0x17, 0xc3, 0x08};
    uint8_t *frame = malloc(14 + bytes);
    size_t count = 0;
    frame[count++] = (uint8_t)first_byte;
    uint8_t mask_bit = is_masked ? 0x80 : 0;
    if (bytes < 126) {
        frame[count++] = (uint8_t)(mask_bit | bytes);
    } else if (bytes < 65536) {
        frame[count++] = (uint8_t)(mask_bit | 126);
        frame[count++] = (uint8_t)(bytes >> 8);
        frame[count++] = (uint8_t)bytes;
    } else {
        frame[count++] = (uint8_t)(mask_bit | 127);
        for (int i = 7; i >= 0; i--)
            frame[count++] = (uint8_t)((uint64_t)bytes >> (8 * i));
    }
    if (is_masked) {
        memcpy(frame + count, mask, 4);
        count += 4;
    }
    for (size_t i = 0; i < bytes; i++)
        frame[count++] = (uint8_t)(((const uint8_t *)data)[i] ^ (is_masked ? mask[i & 3] : 0));
    bool is_good = ws_send_all(client, frame, count);
    free(frame);
    return is_good;
}

static inline bool ws_send(struct ws_client *client, int opcode, const void *data, size_t bytes)
{
    return ws_send_frame(client, 0x80 | opcode, true, data, bytes);
}

static inline bool ws_send_text(struct ws_client *client, const char *text)
{
    return ws_send(client, WS_TEXT, text, strlen(text));
}

static inline bool ws_read_length(struct ws_client *client, uint8_t second_byte, size_t *ret)
{
    uint8_t wide[8];
    size_t width = second_byte == 126 ? 2 : second_byte == 127 ? 8 : 0;
    if (!ws_receive_all(client, wide, width))
        return false;
    uint64_t length = width ? 0 : second_byte;
    for (size_t i = 0; i < width; i++)
        length = length << 8 | wide[i];
    *ret = (size_t)length;
    return second_byte <= 127 && length <= WS_MESSAGE_BYTES_MAX;
}

/* The next whole message; pings are answered on the way. False: closed without a close frame. */
static inline bool ws_read(struct ws_client *client)
{
    client->bytes = 0;
    client->fragment_count = 0;
    for (;;) {
        uint8_t header[2];
        size_t bytes;
        if (!ws_receive_all(client, header, 2) || !ws_read_length(client, header[1], &bytes))
            return false;
        int opcode = header[0] & 15;
        size_t offset = opcode >= WS_CLOSE ? 0 : client->bytes;
        uint8_t *data =
            opcode >= WS_CLOSE && client->fragment_count ? malloc(bytes + 1) : client->data;
        if (data == client->data) {
            client->data = realloc(client->data, offset + bytes + 1);
            data = client->data;
        }
        bool is_good = ws_receive_all(client, data + offset, bytes);
        data[offset + bytes] = '\0';
        if (is_good && opcode == WS_PING && !client->is_mute)
            ws_send(client, WS_PONG, data, bytes);
        if (data != client->data)
            free(data);
        if (!is_good)
            return false;
        if (opcode == WS_PING || opcode == WS_PONG)
            continue;
        if (opcode != 0)
            client->opcode = opcode;
        client->bytes = offset + bytes;
        client->fragment_count++;
        if (header[0] & 0x80)
            return true;
    }
}

/* Skips messages up to the close frame; 0 when there was none. One of RAVEN's own (4000 and more)
 * is answered, and then the other side has to close. */
static inline int ws_read_close(struct ws_client *client)
{
    while (ws_read(client)) {
        if (client->opcode != WS_CLOSE)
            continue;
        int code = client->bytes >= 2 ? client->data[0] << 8 | client->data[1] : 1005;
        if (code < 4000)
            return code;
        ws_send(client, WS_CLOSE, client->data, client->bytes >= 2 ? 2 : 0);
        uint8_t byte;
        while (recv(client->fd, &byte, 1, 0) > 0)
            ;
        return code;
    }
    return 0;
}

static inline void ws_done(struct ws_client *client)
{
    if (client->fd >= 0)
        close(client->fd);
    free(client->data);
    *client = (struct ws_client){.fd = -1};
}

#endif
