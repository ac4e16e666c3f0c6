/* serve: `cleave serve`: the gateway's process. It puts the parts together (HTTP, gateway,
 * launcher, metrics) and runs their one loop. */
#ifndef SERVER_SERVE_H
#define SERVER_SERVE_H

#include "common/config.h"
#include "common/log.h"

#include <stdbool.h>

/* argv[0] is the subcommand's name. Returns the exit status: 0 after SIGTERM or SIGINT
 * (serve_stop.c); 1 when it could not start; 2 for wrong options. */
int serve_main(int argc, char **argv);

struct serve_options {
    struct config *config; /* the effective one; owned by the caller */
    bool check_only;
    bool quiet;
    enum log_level log_level;
    const char *log_level_name; /* as given, or NULL */
};

/* Reads the command line into *out and out->config. Returns -1 to go on, else the exit status; it
 * has printed the error, or the help. */
int serve_options_parse(int argc, char **argv, struct serve_options *out);

/* The same when the config is read again: nothing is printed, *out changes whatever happens. */
enum status serve_options_again(int argc, char **argv, struct serve_options *out,
                                struct error *error);

/* What --check prints. */
void serve_options_print(const struct config *config, const char *model_path);

#endif
