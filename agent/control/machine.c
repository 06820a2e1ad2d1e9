/* Reads the machine's description from the system. Any thread; called once at start. The count of
 * threads is the affinity mask's, not the machine's: in a container they differ. */
#include "agent/control/machine.h"

#include "common/base/bytes.h"

#include <ctype.h>
#include <fcntl.h>
#include <sched.h>
#include <string.h>
#include <unistd.h>

bool machine_cpu_name(const char *cpuinfo, char ret[MACHINE_CPU_BYTES])
{
    const char *line = cpuinfo;
    while (line && strncmp(line, "model name", 10) != 0) {
        line = strchr(line, '\n');
        line = line ? line + 1 : NULL;
    }
    const char *value = line ? strchr(line, ':') : NULL;
    if (!value)
        return false;
    value++;
    size_t out = 0;
    bool space = false;
    for (; *value && *value != '\n'; value++) {
        unsigned char c = (unsigned char)*value;
        if (isspace(c)) {
            space = out > 0;
        } else if (isprint(c) && c < 128 && out + 2 < MACHINE_CPU_BYTES) {
            if (space)
                ret[out++] = ' ';
            space = false;
            ret[out++] = (char)c;
        }
    }
    ret[out] = '\0';
    return out > 0;
}

static void describe_cpu(char ret[MACHINE_CPU_BYTES])
{
    char text[16384]; /* the first processor's entry is enough */
    int fd = open("/proc/cpuinfo", O_RDONLY | O_CLOEXEC);
    ssize_t got = fd >= 0 ? read(fd, text, sizeof text - 1) : -1;
    if (fd >= 0)
        close(fd);
    text[got > 0 ? got : 0] = '\0';
    if (!machine_cpu_name(text, ret))
        text_copy(ret, MACHINE_CPU_BYTES, "unknown");
}

void machine_describe(struct machine *ret)
{
    *ret = (struct machine){.threads = 1};
    describe_cpu(ret->cpu);
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0)
        ret->threads = (unsigned)CPU_COUNT(&set);
    long pages = sysconf(_SC_PHYS_PAGES), page_bytes = sysconf(_SC_PAGESIZE);
    if (pages > 0 && page_bytes > 0)
        ret->memory_bytes = (uint64_t)pages * (uint64_t)page_bytes;
}
