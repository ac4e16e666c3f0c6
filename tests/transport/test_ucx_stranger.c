/* Goal: a transport with default settings opens no port on which UCX, which has no access control
 * over TCP, would let strangers read and write the memory of the process.
 *
 * Method: another process opens the default fabric and gives away its UCX address. This process is
 * a stock UCX client with TCP: it must not reach that address. As a control, it does reach a fabric
 * that was given TCP by name. The listening sockets of both kinds are counted in /proc.
 *
 * Also: no other user can attach shared memory of UCX at any time, although UCX requests segments
 * that its group may attach. */
#include "tests/check.h"
#include "transport/fabric.h"
#include "transport/transport.h"

#include <dirent.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <ucp/api/ucp.h>
#include <unistd.h>

#define REGION       ((uint64_t)1 << 20)
#define ADDRESS_MOST 4096

struct gift { /* What the other process reports. */
    size_t bytes;
    uint8_t address[ADDRESS_MOST];
};

/* True if `inode` belongs to a descriptor of this process. */
static bool own_socket(unsigned long inode)
{
    char want[64], path[300], name[64];
    bool found = false;
    snprintf(want, sizeof(want), "socket:[%lu]", inode);
    DIR *folder = opendir("/proc/self/fd");
    for (struct dirent *entry; folder != NULL && (entry = readdir(folder)) != NULL;) {
        snprintf(path, sizeof(path), "/proc/self/fd/%s", entry->d_name);
        ssize_t length = readlink(path, name, sizeof(name) - 1);
        name[length > 0 ? length : 0] = 0;
        found = found || strcmp(name, want) == 0;
    }
    closedir(folder);
    return found;
}

/* Number of listening TCP sockets of this process. */
static int listeners(void)
{
    static const char *const tables[] = {"/proc/self/net/tcp", "/proc/self/net/tcp6"};
    int count = 0;
    for (int i = 0; i < 2; i++) {
        char line[512];
        FILE *file = fopen(tables[i], "r");
        while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
            unsigned state;
            unsigned long inode;
            if (sscanf(line, " %*d: %*[0-9A-Fa-f:] %*[0-9A-Fa-f:] %x %*s %*s %*s %*s %*s %lu",
                       &state, &inode) == 2 &&
                state == 0x0a && own_socket(inode))
                count++;
        }
        if (file != NULL)
            fclose(file);
    }
    return count;
}

static _Noreturn void victim(const char *tls, int out)
{
    const struct fabric_options options = {
        .region_bytes = REGION, .ucx_tls = tls, .one_host = tls != NULL};
    struct fabric *fabric;
    struct error error = {{0}};
    struct gift gift = {0};
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    CHECKF(fabric_open(&options, &fabric, &error) == ST_OK, "%s", error.text);
    CHECK((listeners() > 0) == (tls != NULL));
    gift.bytes = fabric_address(fabric)->worker_bytes;
    CHECK(gift.bytes <= sizeof(gift.address));
    if (gift.bytes > 0)
        memcpy(gift.address, fabric_address(fabric)->worker, gift.bytes);
    CHECK(write(out, &gift, sizeof(gift)) == sizeof(gift));
    for (;;)
        if (!fabric_progress(fabric))
            usleep(100);
}

static pid_t victim_start(const char *tls, struct gift *gift)
{
    int fds[2];
    CHECK(pipe(fds) == 0);
    fflush(stdout);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0)
        victim(tls, fds[1]);
    close(fds[1]);
    size_t have = 0;
    for (ssize_t got = 1; have < sizeof(*gift) && got > 0; have += (size_t)got)
        got = read(fds[0], (char *)gift + have, sizeof(*gift) - have);
    CHECK(have == sizeof(*gift));
    close(fds[0]);
    return pid;
}

/* Number of System V segments that this process has made. Fails if others may attach one. */
static int segments(void)
{
    char line[512];
    int count = 0;
    FILE *file = fopen("/proc/sysvipc/shm", "r");
    CHECK(file != NULL);
    while (fgets(line, sizeof(line), file) != NULL) {
        unsigned mode;
        int maker;
        if (sscanf(line, "%*s %*s %o %*s %d", &mode, &maker) != 2 || maker != getpid())
            continue;
        CHECKF((mode & 077) == 0, "a segment of mode %o", mode);
        count++;
    }
    fclose(file);
    return count;
}

/* Memory that UCX makes after the transport has been opened. */
static _Noreturn void segments_check(void)
{
    const struct fabric_options options = {.region_bytes = REGION, .one_host = true};
    const ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES,
                                 .features = UCP_FEATURE_RMA};
    const ucp_mem_map_params_t map = {.field_mask = UCP_MEM_MAP_PARAM_FIELD_LENGTH |
                                                    UCP_MEM_MAP_PARAM_FIELD_FLAGS,
                                      .length = REGION,
                                      .flags = UCP_MEM_MAP_ALLOCATE};
    struct fabric *fabric;
    struct error error = {{0}};
    ucp_config_t *config;
    ucp_context_h context;
    ucp_mem_h memory;
    CHECKF(fabric_open(&options, &fabric, &error) == ST_OK, "%s", error.text);
    int before = segments();
    CHECK(before > 0);
    CHECK(ucp_config_read(NULL, NULL, &config) == UCS_OK);
    CHECK(ucp_config_modify(config, "TLS", "sysv,self") == UCS_OK);
    CHECK(ucp_init(&params, config, &context) == UCS_OK);
    CHECK(ucp_mem_map(context, &map, &memory) == UCS_OK);
    CHECK(segments() > before);
    _exit(0);
}

static void on_error(void *arg, ucp_ep_h ep, ucs_status_t status)
{
    (void)ep;
    *(ucs_status_t *)arg = status;
}

/* Whether a stock UCX client over TCP reaches the address: its flush succeeds. */
static bool client_reaches(const struct gift *gift)
{
    ucp_config_t *config;
    ucp_context_h context;
    ucp_worker_h worker;
    ucp_ep_h ep;
    ucs_status_t failure = UCS_OK;
    const ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES,
                                 .features = UCP_FEATURE_RMA};
    const ucp_worker_params_t worker_params = {.field_mask = 0};
    const ucp_request_param_t none = {0};
    CHECK(ucp_config_read(NULL, NULL, &config) == UCS_OK);
    CHECK(ucp_config_modify(config, "TLS", "tcp,self") == UCS_OK);
    CHECK(ucp_init(&params, config, &context) == UCS_OK);
    ucp_config_release(config);
    CHECK(ucp_worker_create(context, &worker_params, &worker) == UCS_OK);
    const ucp_ep_params_t ep_params = {
        .field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER,
        .address = (const ucp_address_t *)gift->address,
        .err_mode = UCP_ERR_HANDLING_MODE_PEER,
        .err_handler = {.cb = on_error, .arg = &failure},
    };
    bool reached = false;
    if (ucp_ep_create(worker, &ep_params, &ep) == UCS_OK) {
        void *request = ucp_ep_flush_nbx(ep, &none);
        ucs_status_t status = UCS_PTR_IS_PTR(request) ? UCS_INPROGRESS : UCS_PTR_STATUS(request);
        while (status == UCS_INPROGRESS) {
            ucp_worker_progress(worker);
            status = ucp_request_check_status(request);
        }
        reached = status == UCS_OK && failure == UCS_OK;
        if (UCS_PTR_IS_PTR(request))
            ucp_request_free(request);
    }
    ucp_worker_destroy(worker);
    ucp_cleanup(context);
    return reached;
}

static void victim_end(pid_t pid)
{
    kill(pid, SIGKILL);
    CHECK(waitpid(pid, NULL, 0) == pid);
}

static void test_names(void)
{
    static const char *const closed[] = {"", "sysv,self", "none", "rc,dc,sysv,self",
                                         "cuda,rc_mlx5"};
    static const char *const open[] = {"tcp", "sysv,tcp", "all", "^sysv", "\\tcp", "sysv,new"};
    CHECK(!transport_ucx_exposes(NULL));
    for (size_t i = 0; i < sizeof(closed) / sizeof(closed[0]); i++)
        CHECKF(!transport_ucx_exposes(closed[i]), "%s", closed[i]);
    for (size_t i = 0; i < sizeof(open) / sizeof(open[0]); i++)
        CHECKF(transport_ucx_exposes(open[i]), "%s", open[i]);
}

int main(void)
{
    int status;
    fflush(stdout);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0)
        segments_check();
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    struct gift gift;
    test_names();
    setenv("UCX_TLS", "tcp", 1); /* The environment must not open a port either. */
    pid_t pid = victim_start(NULL, &gift);
    if (gift.bytes > 0)
        CHECK(!client_reaches(&gift));
    victim_end(pid);
    pid = victim_start("tcp", &gift);
    CHECK(client_reaches(&gift));
    victim_end(pid);
    printf("UCX is reached by TCP only where it is named\n");
    return 0;
}
