/* Goal: an RDMA machine whose process may lock less memory than its KV region needs does not start,
 * and the error names both sizes and the remedies. Without RDMA, the limit does not matter.
 *
 * Method: this process lowers its limit and gives up the right to exceed it. The limit is checked
 * before UCX opens a device, so no RDMA device is needed. */
#include "tests/transport/net.h"

#include <linux/capability.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#define REGION ((uint64_t)5 << 20)

static enum status open_named(const char *tls, bool one_host, struct error *error)
{
    struct transport_options options = net_options("p0", REGION);
    struct transport *t;
    options.ucx_tls = tls;
    options.one_host = one_host;
    enum status status = transport_open(&transport_ucx, &options, &t, error);
    if (status == ST_OK)
        transport_close(t);
    return status;
}

static void limit_set(uint64_t bytes)
{
    const struct rlimit limit = {bytes, bytes};
    CHECK(setrlimit(RLIMIT_MEMLOCK, &limit) == 0);
}

int main(void)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct caps[_LINUX_CAPABILITY_U32S_3] = {0};
    struct error error = {0};

    limit_set(64 << 10);
    CHECK(syscall(SYS_capset, &header, caps) == 0);
    static const char *const rdma[] = {"rc,self", "self,rc_verbs", "sysv,ud_verbs", "ib",
                                       "dc_x,self"};
    for (size_t i = 0; i < sizeof(rdma) / sizeof(rdma[0]); i++) {
        CHECK(open_named(rdma[i], false, &error) == ST_NO_MEMORY);
        CHECKF(strstr(error.text, "needs 5 MiB of locked memory") != NULL, "%s", error.text);
        CHECKF(strstr(error.text, "may lock 64 KiB") != NULL, "%s", error.text);
        CHECKF(strstr(error.text, "ucx_transports") != NULL, "%s", error.text);
    }
    /* No RDMA, or nothing beyond this host. */
    CHECKF(open_named("sysv,self", false, &error) == ST_OK, "%s", error.text);
    CHECKF(open_named("none", false, &error) == ST_OK, "%s", error.text);
    CHECKF(open_named(NULL, true, &error) == ST_OK, "%s", error.text);
    error.text[0] = 0;
    (void)open_named("rc,self", true, &error); /* Fails where there is no such device. */
    CHECKF(strstr(error.text, "locked memory") == NULL, "%s", error.text);
    return 0;
}
