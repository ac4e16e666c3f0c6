/* etcd_access: what a client proves to etcd, and how it knows etcd: user and password, client
 * certificate, CA. All of it is optional. The files are read when they are needed, so renewed ones
 * are used without a restart. Only etcd.c includes it; same thread. It keeps no secret. */
#ifndef MEMBERSHIP_ETCD_ACCESS_H
#define MEMBERSHIP_ETCD_ACCESS_H

#include "common/status.h"
#include "config/config.h"

#include <curl/curl.h>
#include <jansson.h>

struct etcd_access { /* Empty texts: not used. */
    char user[LIMIT_USER_BYTES];
    char password_file[LIMIT_PATH_BYTES];
    char ca_file[LIMIT_PATH_BYTES];
    char certificate_file[LIMIT_PATH_BYTES];
    char key_file[LIMIT_PATH_BYTES];
};

/* Takes user and files of cluster/etcd_…, and checks that the files can be read; password and key
 * must be private, see secret_file_read. */
enum status etcd_access_open(const struct config *config, struct etcd_access *out,
                             struct error *error);

/* Sets CA and client certificate of a call. *key_fd_out: a descriptor that must stay open until the
 * call has ended; -1 = none. */
enum status etcd_access_tls(const struct etcd_access *access, CURL *curl, int *key_fd_out,
                            struct error *error);

/* Returns the body of a login (a new reference); NULL = the password cannot be read. */
json_t *etcd_access_login(const struct etcd_access *access, struct error *error);

/* Returns the header that carries the token of a reply to the login; NULL = it has none, or no
 * memory. The caller wipes and frees it. */
char *etcd_access_token(const json_t *reply);

#endif
