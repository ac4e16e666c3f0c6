/* etcd_access: how a client of etcd proves its identity (user and password, client certificate),
 * and how it checks etcd's certificate (CA). User, client certificate and CA are optional. Renewed
 * files are used without a restart: the password file is read for each login, the other files for
 * each new connection. etcd.c calls the functions, on the event loop thread of its process. This
 * part keeps no secrets in memory and makes no calls to etcd. */
#ifndef MEMBERSHIP_ETCD_ACCESS_H
#define MEMBERSHIP_ETCD_ACCESS_H

#include "common/status.h"
#include "config/config.h"

#include <curl/curl.h>
#include <jansson.h>

/* The name of the user and the paths of the files; an empty text = not used. */
struct etcd_access {
    char user[LIMIT_USER_BYTES];
    char password_file[LIMIT_PATH_BYTES];
    char ca_file[LIMIT_PATH_BYTES];
    char certificate_file[LIMIT_PATH_BYTES];
    char key_file[LIMIT_PATH_BYTES];
};

/* Copies the user and the file paths from the config (cluster/etcd_…), and checks that the files
 * can be read. The password file is checked only if there is a user. The password file and the key file
 * must pass the checks of secret_file_open. */
enum status etcd_access_open(const struct config *config, struct etcd_access *out,
                             struct error *error);

/* Sets the CA and the client certificate of a call. *key_fd_out is a descriptor of the key file,
 * which the caller closes after the call has ended; -1 = none. Returns the errors of
 * secret_file_open; ST_NO_MEMORY. */
enum status etcd_access_tls_set(const struct etcd_access *access, CURL *curl, int *key_fd_out,
                                struct error *error);

/* Returns the body of a login (a new reference); NULL = the password cannot be read, is empty or is
 * not UTF-8, or there is no memory. */
json_t *etcd_access_login_body(const struct etcd_access *access, struct error *error);

/* Returns the HTTP header with the token from a reply to the login; NULL = the reply has no token
 * that can be part of a header, or there is no memory. The caller wipes and frees the text. */
char *etcd_access_token_header(const json_t *reply);

#endif
