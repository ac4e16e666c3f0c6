/* build_info: which build of cleave this process is. main.c sets the commit before any other thread
 * starts. After that, any thread may read it: --version, the logs and reports of machines and
 * gateways, and /metrics show the build. The commit is not compiled into the libraries, so after a
 * new commit only the program is linked again. This part does not know the versions of the protocol
 * (transport/protocol.h). */
#ifndef COMMON_BUILD_INFO_H
#define COMMON_BUILD_INFO_H

#include <stdio.h>

/* The output of `git describe` for the source; empty = the source had no git repository. Only the
 * program has this variable, in a file that meson.build writes. */
extern const char build_info_described[];

/* `commit` is not copied and must stay valid. */
void build_info_commit_set(const char *commit);
/* Returns the commit; empty = unknown (a test, or a source without git). */
const char *build_info_commit(void);
/* Returns the release, such as "0.1.0". */
const char *build_info_release(void);
/* Returns compiler, processor and options of the build, such as "gcc 12.2.0, x86_64, release". */
const char *build_info_options(void);
/* Prints what --version says: the release with its commit, and a line about the build. */
void build_info_print(FILE *out);

#endif
