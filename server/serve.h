/* serve: the subcommand `cleave serve`, the gateway's process. It owns the parts of the gateway's
 * process (HTTP, gateway, launcher, metrics) and runs their common event loop. main.c calls
 * serve_main; tools/check/ calls check_say and the two serve_check functions; server/serve*.c call
 * the others. All run on the main thread. It computes no tokens: machines do, in processes of their
 * own. */
#ifndef SERVER_SERVE_H
#define SERVER_SERVE_H

#include "common/log.h"
#include "config/config.h"

#include <stdbool.h>
#include <stdint.h>

/* Runs the subcommand; argv[0] is its name. Returns the exit status: 0 after SIGTERM or SIGINT
 * (serve_stop.c), --check or --help; 1 if it could not start or had to stop; 2 for wrong
 * options. */
int serve_main(int argc, char **argv);

struct serve_options {
    struct config *config; /* The effective config; owned by the caller. */
    bool check_only;       /* --check: print the effective config (serve_options_print), and end. */
    bool quiet;            /* --quiet: print only the line that says that the server is ready. */
    enum log_level log_level; /* Level of log_level_name; LOG_INFO if it is NULL. */
    /* The level of --log-level, or "warn" for --quiet; NULL = neither option was given. */
    const char *log_level_name;
};

/* Reads the command line into *out and out->config. Returns -1 to continue, else the exit status
 * after it has printed the error or the help. */
int serve_options_parse(int argc, char **argv, struct serve_options *out);

/* Reads the command line and the config file again, for a reload. Prints nothing. *out may be
 * changed even if an error is returned. */
enum status serve_options_reparse(int argc, char **argv, struct serve_options *out,
                                  struct error *error);

/* Prints the output of --check: source, model, HTTP address, machines and KV settings of the
 * effective config. */
void serve_options_print(const struct config *config, const char *model_path);

enum check_level { CHECK_GOOD, CHECK_WARNING, CHECK_ERROR };

/* Receives the results of checks. `key` is the key of the config that was checked. */
struct check_report {
    void (*say)(void *self, enum check_level level, const char *key, const char *text);
    void *self; /* First argument of `say`. */
};

/* Reports one result, with a formatted text. */
void check_say(const struct check_report *report, enum check_level level, const char *key,
               const char *format, ...) __attribute__((format(printf, 4, 5)));

/* Checks what a gateway with this config needs: API keys, certificate, cluster keys, the socket of
 * the administrator, the files of logs, the HTTP address, the limit of open files, the model, and
 * the draft model if a local machine has one; `deep`: also the model's tokenizer and chat template.
 * Reports every result, and changes no file. *bytes_out: sizes of the models' files. */
void serve_check(const struct config *config, bool deep, const struct check_report *report,
                 struct config_model_bytes *bytes_out);
/* Checks only the models and the cluster keys: the files that machines read, too. machine_index:
 * the machine that this host runs; -1 = this host runs all local machines. */
void serve_check_machine_files(const struct config *config, int machine_index, bool deep,
                               const struct check_report *report,
                               struct config_model_bytes *bytes_out);

#endif
