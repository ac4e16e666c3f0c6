/* serve: the subcommand `cleave serve`, the gateway's process. It owns the parts of this process
 * (HTTP, gateway, launcher, metrics) and runs their common event loop. main.c, server/serve*.c and
 * tools/check/ call the functions on the main thread. `cleave serve` computes no tokens: machines
 * do, in processes of their own. */
#ifndef SERVER_SERVE_H
#define SERVER_SERVE_H

#include "common/log.h"
#include "config/config.h"

#include <stdbool.h>
#include <stdint.h>

/* Runs the subcommand; argv[0] is its name. Returns the exit status: 0 after SIGTERM or SIGINT, a
 * --check without errors, or an option that only prints; 2 for wrong options; 1 otherwise. */
int serve_main(int argc, char **argv);

/* The command line as values. */
struct serve_options {
    struct config *config; /* The file's config with the changes by options; owned by the caller. */
    bool check_only;       /* --check: check and print the config, and exit. */
    bool quiet;            /* --quiet: print only the line that says that the server is ready. */
    enum log_level log_level; /* Level of log_level_name; LOG_INFO if log_level_name is NULL. */
    /* The level of --log-level, or "warn" for --quiet; NULL = neither option was given. */
    const char *log_level_name;
};

/* Reads the command line and the config file into *out and *out->config. Returns -1 to continue, or
 * the exit status after an error or an option that only prints. */
int serve_options_parse(int argc, char **argv, struct serve_options *out);

/* Does what serve_options_parse does, for a reload, but prints nothing. Returns ST_OK to continue.
 * After an error *out and *out->config are not valid. */
enum status serve_options_reparse(int argc, char **argv, struct serve_options *out,
                                  struct error *error);

/* Prints the output of --check: config, model, HTTP address, machines and KV settings. */
void serve_options_print(const struct config *config, const char *model_path);

/* The result of one check. */
enum check_level { CHECK_GOOD, CHECK_WARNING, CHECK_ERROR };

/* The receiver of the results of checks. */
struct check_report {
    /* Receives a result. key: the config key that was checked. text: the result in words. */
    void (*say)(void *self, enum check_level level, const char *key, const char *text);
    void *self; /* First argument of `say`. */
};

/* Calls report->say with a formatted text. */
void check_say(const struct check_report *report, enum check_level level, const char *key,
               const char *format, ...) __attribute__((format(printf, 4, 5)));

/* Checks what a gateway with this config needs on this host, such as files, addresses and models.
 * Changes no file. is_deep: also reads the model's tokenizer and chat template, and connects to the
 * servers of the shared KV store. *bytes_out: sizes of the files of the model and of the draft
 * model; 0 = not known. */
void serve_check(const struct config *config, bool is_deep, const struct check_report *report,
                 struct config_model_bytes *bytes_out);
/* Checks the files of the models and the cluster keys. machine_index: index of the machine that
 * this host runs; -1 = this host runs all local machines. is_deep: also reads the model's tokenizer
 * and chat template. *bytes_out: see serve_check. */
void serve_check_machine_files(const struct config *config, int machine_index, bool is_deep,
                               const struct check_report *report,
                               struct config_model_bytes *bytes_out);

#endif
