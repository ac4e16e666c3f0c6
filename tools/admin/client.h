/* admin_client: sends HTTP requests to gateways as an administrator: through the Unix socket
 * http/admin_socket, or to a URL with an API key. A client owns its connections. The subcommands of
 * admin.h call the functions on the main thread. A client waits for the answer of each request, and
 * does not retry. libcurl is loaded when a client is opened. */
#ifndef TOOLS_ADMIN_CLIENT_H
#define TOOLS_ADMIN_CLIENT_H

#include "common/limits.h"
#include "common/options.h"
#include "common/status.h"

#include <jansson.h>
#include <stdbool.h>

#define ADMIN_GATEWAYS_MAX 16
#define ADMIN_SOCKET       "/run/cleave/admin.sock" /* The socket of the Debian package. */
#define ADMIN_URL          "http://127.0.0.1:8080"

/* Options of every subcommand of admin.h. Texts point into argv. */
struct admin_target {
    struct option_texts gateways; /* Values of --socket and --url; may be empty. */
    const char *api_key_file;     /* File with the API key; NULL = none. */
    const char *ca_file; /* PEM file of trusted certificates; NULL = the system's certificates. */
    bool every_address;  /* Each address of a URL's host is a gateway. */
    double timeout_s;    /* Most time of one request. */
};

/* Rows of a subcommand's option table. type: the struct that receives the options' values. field:
 * the member of this struct that is a struct admin_target. */
/* clang-format off */
#define ADMIN_OPTIONS(type, field)                                                                                      \
    {"socket", "PATH", OPTION_TEXTS, offsetof(struct type, field.gateways), 0, ADMIN_GATEWAYS_MAX, {NULL}, NULL,        \
     "the gateway's socket (http/admin_socket); may be repeated, for several gateways (default: " ADMIN_SOCKET          \
     ", else " ADMIN_URL ")"},                                                                                          \
    {"url", "URL", OPTION_TEXTS, offsetof(struct type, field.gateways), 0, ADMIN_GATEWAYS_MAX, {NULL}, NULL,            \
     "the gateway's address, such as https://node1:8080; may be repeated"},                                             \
    {"every-address", NULL, OPTION_FLAG, offsetof(struct type, field.every_address), 0, 0, {NULL}, NULL,                \
     "ask a gateway at each address of the URL's host"},                                                                \
    {"api-key-file", "FILE", OPTION_TEXT, offsetof(struct type, field.api_key_file), 0, 0, {NULL}, NULL,                \
     "file of mode 0600 with the API key of an administrator; a socket needs none"},                                    \
    {"ca-file", "FILE", OPTION_TEXT, offsetof(struct type, field.ca_file), 0, 0, {NULL}, NULL,                          \
     "certificates in PEM that may have signed the gateway's (default: those of the system)"},                          \
    {"timeout-s", "S", OPTION_REAL, offsetof(struct type, field.timeout_s), 0.1, 3600, {NULL}, "10",                    \
     "most seconds of one request"}
/* clang-format on */

struct admin_client;

/* Opens a client for the gateways of *target, without connecting. With every_address, resolves the
 * names of the URLs' hosts. If *target names no gateway, the gateway is ADMIN_SOCKET if this file
 * exists, otherwise ADMIN_URL. The text target->ca_file must stay valid until the client is closed.
 * ST_UNSUPPORTED: libcurl is not installed. ST_NO_MEMORY: memory runs out. Other statuses: *target
 * is wrong, or a name cannot be resolved. */
enum status admin_client_open(const struct admin_target *target, struct admin_client **out,
                              struct error *error);
void admin_client_close(struct admin_client *client); /* NULL is fine. */

unsigned admin_client_count(const struct admin_client *client); /* Number of gateways. */
/* Returns a gateway's socket or URL, for messages; with every_address also the address. The text is
 * valid until the client is closed. */
const char *admin_client_name(const struct admin_client *client, unsigned gateway);

/* Sends a request to a gateway and waits for the answer. gateway: from 0 to admin_client_count - 1.
 * path: from "/" on, with the query. body: JSON; NULL = none. *text_out: the answer's body, which
 * the caller frees. ST_UNREACHABLE: no whole answer arrived within timeout_s, or the answer has
 * more than 64 MiB. ST_NOT_FOUND: HTTP status 404. ST_INVALID: another HTTP status above 299.
 * ST_IO: the answer is empty. ST_TOO_LARGE: `path` is too long. ST_NO_MEMORY: memory runs out. */
enum status admin_client_text(struct admin_client *client, unsigned gateway, const char *method,
                              const char *path, const char *body, char **text_out,
                              struct error *error);
/* Does what admin_client_text does, for an answer that is a JSON object. *root_out: a new
 * reference. ST_IO: the answer is not a JSON object. */
enum status admin_client_json(struct admin_client *client, unsigned gateway, const char *method,
                              const char *path, const char *body, json_t **root_out,
                              struct error *error);

/* Writes `path_start` (at most 32 bytes, with a slash at the end) and a machine's name to `out`.
 * Returns false, with *error, if no machine can have the name. */
bool admin_machine_path(const char *path_start, const char *name, char out[LIMIT_NAME_BYTES + 32],
                        struct error *error);

#endif
