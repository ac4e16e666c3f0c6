/* sandbox_internal: what the files of the sandbox (sandbox.h) share: sandbox.c (which files a
 * process needs), sandbox_files.c (Landlock) and sandbox_calls.c (seccomp). The functions run on
 * the main thread, keep no state and write no logs. Limits hold for the calling thread, and for the
 * threads and processes that it starts later; nothing lifts them. */
#ifndef HOST_SANDBOX_INTERNAL_H
#define HOST_SANDBOX_INTERNAL_H

#include "common/limits.h"
#include "common/status.h"

#include <stdbool.h>
#include <stdint.h>

#define SANDBOX_PATHS_MAX 96

/* A list of files and folders. A folder stands for everything in it. */
struct sandbox_paths {
    uint32_t count;
    bool overflow; /* A path is missing: there were too many, or it was too long. */
    char paths[SANDBOX_PATHS_MAX][LIMIT_PATH_BYTES];
};

/* Adds a copy of the path, or sets paths->overflow. */
void sandbox_path_add(struct sandbox_paths *paths, const char *path);

/* The files that a process may use. */
struct sandbox_files {
    const struct sandbox_paths *readable; /* Files that may be read; NULL = all. */
    const struct sandbox_paths *writable; /* Files that may be read and written; not NULL. */
    bool may_start_self; /* The process may start this executable; false = no executable. */
};

/* Returns the version of Landlock that the kernel has; 0 = none. */
int sandbox_landlock_version(void);
/* Limits files with Landlock. Paths that cannot be opened are skipped. Returns ST_UNSUPPORTED if
 * the kernel has no Landlock, ST_TOO_LARGE if a list overflowed, ST_IO if a system call fails. */
enum status sandbox_files_limit(const struct sandbox_files *files, struct error *error);

/* Makes a fixed list of system calls fail, among them all that would make a namespace.
 * starts_processes: the process may start executables; false = execve and execveat fail, too.
 * Returns ST_UNSUPPORTED if the processor or the kernel cannot filter system calls, ST_IO if a
 * system call fails. */
enum status sandbox_syscalls_limit(bool starts_processes, struct error *error);

#endif
