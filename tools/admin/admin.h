/* admin: the subcommands of administrators, such as `cleave status`. They send requests to running
 * gateways (client.h) and print the answers. Only `cleave bundle` does more (bundle_main). main.c
 * calls each function on the main thread; argv[0] is the subcommand's name. Each returns the exit
 * status: 0 = done; 2 = wrong options; 1 = every other failure, also if only one of several
 * gateways failed. They read no config file. */
#ifndef TOOLS_ADMIN_ADMIN_H
#define TOOLS_ADMIN_ADMIN_H

int status_main(int argc, char **argv); /* 1 also if a gateway is not ready. */
int machines_main(int argc, char **argv);
int drain_main(int argc, char **argv);
int undrain_main(int argc, char **argv);
int reload_main(int argc, char **argv);
int requests_main(int argc, char **argv); /* 1 also if no gateway knows the request. */
/* Writes what the gateways tell into a new tar file, and the latest log lines of this host's
 * gateways and machines (host_logs.h): it reads /proc, the files to which these processes write
 * their standard error, and systemd's journal, by running journalctl. Removes the tar file if the
 * file cannot be written. */
int bundle_main(int argc, char **argv);
int top_main(int argc, char **argv); /* Only failures of the last screen drawn count. */

#endif
