/* A scripted TCP peer for tests: a thread accepts connections and runs a script on each, which says
 * whatever it likes. With what a script needs of HTTP and WebSocket, a CONNECT proxy, and TLS by
 * `openssl s_server`. Include after cmocka.h and libwebsockets.h (for its SHA-1). */
#ifndef RAVEN_TESTS_SUPPORT_PEER_H
#define RAVEN_TESTS_SUPPORT_PEER_H

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define PEER_UNUSED __attribute__((unused))

struct peer {
    int listener;
    uint16_t port;
    pthread_t thread;
    void (*script)(struct peer *peer, int fd); /* fd is closed after it */
    const char *wanted;                        /* for peer_proxy: its Proxy-Authorization */
    atomic_int connections;
    char head[4096]; /* the last request's */
};

/* A port on which nobody listens (any more). */
static PEER_UNUSED uint16_t peer_dead_port(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, bytes), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &bytes), 0);
    close(fd);
    return ntohs(address.sin_port);
}

static PEER_UNUSED void *peer_thread(void *user)
{
    struct peer *peer = user;
    int fd;
    while ((fd = accept4(peer->listener, NULL, NULL, SOCK_CLOEXEC)) >= 0) {
        atomic_fetch_add(&peer->connections, 1);
        peer->script(peer, fd);
        close(fd);
    }
    return NULL;
}

static PEER_UNUSED void peer_start(struct peer *peer, void (*script)(struct peer *, int))
{
    *peer = (struct peer){.script = script};
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof address;
    peer->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(peer->listener, (struct sockaddr *)&address, bytes), 0);
    assert_int_equal(listen(peer->listener, 64), 0);
    assert_int_equal(getsockname(peer->listener, (struct sockaddr *)&address, &bytes), 0);
    peer->port = ntohs(address.sin_port);
    assert_int_equal(pthread_create(&peer->thread, NULL, peer_thread, peer), 0);
}

static PEER_UNUSED void peer_stop(struct peer *peer)
{
    shutdown(peer->listener, SHUT_RDWR);
    pthread_join(peer->thread, NULL);
    close(peer->listener);
}

/* Works on pipes too. */
static PEER_UNUSED void peer_send(int fd, const void *data, size_t bytes)
{
    const uint8_t *p = data;
    while (bytes > 0) {
        ssize_t sent = write(fd, p, bytes);
        if (sent <= 0)
            return;
        p += sent;
        bytes -= (size_t)sent;
    }
}

static PEER_UNUSED void peer_say(int fd, const char *text)
{
    peer_send(fd, text, strlen(text));
}

/* Up to the empty line; "" when the other side went. */
static PEER_UNUSED void peer_read_head(int fd, char ret[4096])
{
    size_t bytes = 0;
    ret[0] = '\0';
    while (bytes < 4095 && !strstr(ret, "\r\n\r\n")) {
        ssize_t got = read(fd, ret + bytes, 1);
        if (got <= 0) {
            ret[0] = '\0';
            return;
        }
        ret[++bytes] = '\0';
    }
}

static PEER_UNUSED void peer_wait_for_end(int fd)
{
    char rest[4096];
    while (read(fd, rest, sizeof rest) > 0)
        ;
}

/* close() then resets the connection. */
static PEER_UNUSED void peer_arm_reset(int fd)
{
    struct linger linger = {.l_onoff = 1};
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger);
}

/* A script: not what the client is looking for. */
static PEER_UNUSED void peer_mail_server(struct peer *peer, int fd)
{
    (void)peer;
    peer_say(fd, "220 mail.example ESMTP\r\n");
    peer_wait_for_end(fd);
}

/* --- WebSocket -------------------------------------------------------------------------------- */

static PEER_UNUSED bool peer_upgrade(int in, int out, char head[4096])
{
    peer_read_head(in, head);
    const char *key = strstr(head, "Sec-WebSocket-Key: ");
    if (!key)
        return false;
    char text[128], accept[64], answer[256];
    uint8_t sha[20];
    snprintf(text, sizeof text, "%.24s258EAFA5-E914-47DA-95CA-C5AB0DC85B11", key + 19);
    lws_SHA1((const unsigned char *)text, strlen(text), sha);
    lws_b64_encode_string((const char *)sha, sizeof sha, accept, sizeof accept);
    snprintf(answer, sizeof answer,
             "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
             "Sec-WebSocket-Accept: %s\r\nSec-WebSocket-Protocol: test\r\n\r\n",
             accept);
    peer_say(out, answer);
    return true;
}

/* first: FIN bit and opcode */
static PEER_UNUSED void peer_frame(int fd, uint8_t first, const void *data, size_t bytes)
{
    uint8_t head[10] = {first, (uint8_t)bytes};
    size_t head_bytes = 2;
    if (bytes > 125) {
        head[1] = 126;
        head[2] = (uint8_t)(bytes >> 8);
        head[3] = (uint8_t)bytes;
        head_bytes = 4;
    }
    peer_send(fd, head, head_bytes);
    peer_send(fd, data, bytes);
}

static PEER_UNUSED bool peer_read_all(int fd, void *ret, size_t bytes)
{
    uint8_t *p = ret;
    while (bytes > 0) {
        ssize_t got = read(fd, p, bytes);
        if (got <= 0)
            return false;
        p += got;
        bytes -= (size_t)got;
    }
    return true;
}

/* The client's next frame; returns its opcode with the FIN bit, -1 at the end. */
static PEER_UNUSED int peer_read_frame(int fd, uint8_t *ret, size_t bytes_max, size_t *ret_bytes)
{
    uint8_t head[2], more[8], mask[4];
    if (!peer_read_all(fd, head, 2))
        return -1;
    size_t bytes = head[1] & 127, length_bytes = bytes == 126 ? 2 : bytes == 127 ? 8 : 0;
    if (!peer_read_all(fd, more, length_bytes))
        return -1;
    if (length_bytes > 0)
        bytes = 0;
    for (size_t i = 0; i < length_bytes; i++)
        bytes = bytes << 8 | more[i];
    if (bytes > bytes_max || !peer_read_all(fd, mask, 4) || !peer_read_all(fd, ret, bytes))
        return -1;
    for (size_t i = 0; i < bytes; i++)
        ret[i] ^= mask[i % 4];
    *ret_bytes = bytes;
    return head[0];
}

/* --- a proxy ---------------------------------------------------------------------------------- */

static PEER_UNUSED int peer_connect(uint16_t port)
{
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(fd, (struct sockaddr *)&address, sizeof address) == 0)
        return fd;
    close(fd);
    return -1;
}

static PEER_UNUSED void peer_pump(int a, int b)
{
    char data[65536];
    struct pollfd fds[2] = {{.fd = a, .events = POLLIN}, {.fd = b, .events = POLLIN}};
    while (poll(fds, 2, -1) > 0)
        for (int i = 0; i < 2; i++) {
            ssize_t got = fds[i].revents ? read(fds[i].fd, data, sizeof data) : -2;
            if (got == 0 || got == -1)
                return;
            if (got > 0)
                peer_send(fds[1 - i].fd, data, (size_t)got);
        }
}

/* A CONNECT proxy that knows one host: this one. peer->wanted: "Basic …" or NULL. Its answer comes
 * in small pieces, which is allowed. */
static PEER_UNUSED void peer_proxy(struct peer *peer, int fd)
{
    peer_read_head(fd, peer->head);
    const char *given = strstr(peer->head, "Proxy-Authorization: ");
    const char *colon = strchr(peer->head, ':');
    if (peer->wanted && (!given || strncmp(given + 21, peer->wanted, strlen(peer->wanted)) != 0)) {
        peer_say(fd, "HTTP/1.1 407 Proxy Authentication Required\r\n"
                     "Proxy-Authenticate: Basic realm=\"x\"\r\nContent-Length: 0\r\n\r\n");
        return;
    }
    if (strncmp(peer->head, "CONNECT ", 8) != 0 || !colon) {
        peer_say(fd, "HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n");
        return;
    }
    int target = peer_connect((uint16_t)strtoul(colon + 1, NULL, 10));
    if (target < 0) {
        peer_say(fd, "HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n");
        return;
    }
    peer_say(fd, "HTTP/1.1 20");
    usleep(20000);
    peer_say(fd, "0 Connection established\r\n");
    usleep(20000);
    peer_say(fd, "Proxy-agent: test\r\n\r\n");
    peer_pump(fd, target);
    close(target);
}

static PEER_UNUSED void peer_forbid(struct peer *peer, int fd)
{
    peer_read_head(fd, peer->head);
    peer_say(fd, "HTTP/1.1 403 Filtered\r\nContent-Length: 0\r\n\r\n");
}

/* --- TLS -------------------------------------------------------------------------------------- */

struct peer_tls {
    uint16_t port;
    pid_t pid;
    int in, out; /* what the client said; what it is to hear */
};

/* Makes dir/ca.pem and, signed by it, dir/NAME.pem (certificate and key). days_from, days_until:
 * relative to now. */
static PEER_UNUSED void peer_make_certificate(const char *dir, const char *name, const char *host,
                                              int days_from, int days_until)
{
    char command[4096];
    snprintf(
        command, sizeof command,
        "cd %s && exec 2>/dev/null && { [ -e ca.pem ] || openssl req -x509 -newkey "
        "ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=test-ca -days 30 -keyout ca.key "
        "-out ca.pem; } && openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes "
        "-subj /CN=%s -keyout %s.key -out %s.csr && rm -rf db && mkdir db && touch db/index && "
        "echo 01 >db/serial && printf '[ca]\\ndefault_ca=d\\n[d]\\ndatabase=db/index\\n"
        "serial=db/serial\\nnew_certs_dir=db\\ndefault_md=sha256\\npolicy=p\\n"
        "[p]\\ncommonName=supplied\\n[e]\\nsubjectAltName=DNS:%s\\n' >db/conf && "
        "openssl ca -batch -config db/conf -cert ca.pem -keyfile ca.key -extensions e "
        "-startdate $(date -u -d '%d days' +%%Y%%m%%d%%H%%M%%SZ) "
        "-enddate $(date -u -d '%d days' +%%Y%%m%%d%%H%%M%%SZ) -in %s.csr -out %s.crt -notext && "
        "cat %s.crt %s.key >%s.pem",
        dir, host, name, name, host, days_from, days_until, name, name, name, name, name);
    assert_int_equal(system(command), 0);
}

/* `openssl s_server` with this certificate; mode: "-quiet" for a plain pipe, "-HTTP" for files of
 * dir that hold whole responses. */
static PEER_UNUSED void peer_tls_start(struct peer_tls *tls, const char *dir, const char *name,
                                       const char *mode)
{
    int in[2], out[2];
    tls->port = peer_dead_port();
    assert_int_equal(pipe2(in, O_CLOEXEC), 0);
    assert_int_equal(pipe2(out, O_CLOEXEC), 0);
    char port[16], pem[128];
    snprintf(port, sizeof port, "%u", tls->port);
    snprintf(pem, sizeof pem, "%s.pem", name);
    tls->pid = fork();
    if (tls->pid == 0) {
        dup2(out[0], 0);
        dup2(in[1], 1);
        dup2(open("/dev/null", O_WRONLY), 2);
        if (chdir(dir) == 0)
            execlp("openssl", "openssl", "s_server", "-accept", port, "-cert", pem, "-key", pem,
                   mode, "-naccept", "9", (char *)NULL);
        _exit(127);
    }
    close(out[0]);
    close(in[1]);
    tls->in = in[0];
    tls->out = out[1];
    /* It listens once a look at the kernel's table shows the port: a connection would count. */
    char line[256], wanted[16];
    snprintf(wanted, sizeof wanted, ":%04X ", tls->port);
    for (int i = 0; i < 500; i++) {
        bool listens = false;
        const char *tables[] = {"/proc/net/tcp", "/proc/net/tcp6"};
        for (int t = 0; t < 2; t++) {
            FILE *table = fopen(tables[t], "re");
            while (table && fgets(line, sizeof line, table))
                listens |= strstr(line, wanted) && strstr(line, " 0A ");
            if (table)
                fclose(table);
        }
        if (listens)
            return;
        usleep(10000);
    }
    fail_msg("openssl s_server does not start");
}

static PEER_UNUSED void peer_tls_stop(struct peer_tls *tls)
{
    kill(tls->pid, SIGKILL);
    waitpid(tls->pid, NULL, 0);
    close(tls->in);
    close(tls->out);
}

#endif
