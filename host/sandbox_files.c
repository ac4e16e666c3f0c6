/* sandbox_files: limits files with Landlock (Linux 5.13 or later). The kernel's interface is
 * defined here because the headers of older systems lack parts of it. */
#include "host/sandbox_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* System calls: the same numbers on all architectures. */
#define CREATE_RULESET 444
#define ADD_RULE       445
#define RESTRICT_SELF  446

#define CREATE_VERSION  1u
#define RULE_BENEATH    1
#define RULESET_ATTR_V1 8

/* Rights on files. */
#define EXECUTE     (1ull << 0)
#define WRITE_FILE  (1ull << 1)
#define READ_FILE   (1ull << 2)
#define READ_FOLDER (1ull << 3)
/* Removing and making all kinds of entries of folders. */
#define CHANGE_FOLDER  (0x1ffull << 4)
#define REFER          (1ull << 13) /* Version 2. */
#define TRUNCATE       (1ull << 14) /* Version 3. */
#define MAKE_CHARACTER (1ull << 6)
#define MAKE_BLOCK     (1ull << 11)

struct ruleset_attr {
    uint64_t handled_access_fs;
};

struct path_beneath {
    uint64_t allowed_access;
    int32_t parent_fd;
} __attribute__((packed));

void sandbox_path_add(struct sandbox_paths *paths, const char *path)
{
    size_t bytes = strlen(path);
    if (paths->count == SANDBOX_PATHS_MAX || bytes >= LIMIT_PATH_BYTES)
        paths->overflow = true;
    else
        memcpy(paths->paths[paths->count++], path, bytes + 1);
}

int sandbox_landlock_version(void)
{
    long version = syscall(CREATE_RULESET, NULL, 0, CREATE_VERSION);
    return version > 0 ? (int)version : 0;
}

/* Permits rights on a file, or on a folder and all in it. */
static bool permit(int ruleset, const char *path, uint64_t rights)
{
    struct stat found;
    int fd = open(path, O_PATH | O_CLOEXEC);
    if (fd < 0)
        return true;
    if (fstat(fd, &found) == 0 && !S_ISDIR(found.st_mode))
        rights &= EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE;
    struct path_beneath rule = {.allowed_access = rights, .parent_fd = fd};
    bool good = rights == 0 || syscall(ADD_RULE, ruleset, RULE_BENEATH, &rule, 0) == 0;
    close(fd);
    return good;
}

static bool permit_all(int ruleset, const struct sandbox_paths *paths, uint64_t rights)
{
    for (uint32_t i = 0; i < paths->count; i++)
        if (!permit(ruleset, paths->paths[i], rights))
            return false;
    return true;
}

/* Stores the path of the program that loads this executable and its libraries. */
static int loader_find(struct dl_phdr_info *info, size_t size, void *out)
{
    (void)size;
    const char **path = out;
    for (uint32_t i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_INTERP)
            *path = (const char *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
    return 1; /* the first object is the executable */
}

static bool permit_self(int ruleset, uint64_t rights)
{
    const char *loader = NULL;
    dl_iterate_phdr(loader_find, &loader);
    return permit(ruleset, "/proc/self/exe", rights) &&
           (loader == NULL || permit(ruleset, loader, rights));
}

enum status sandbox_files_limit(const struct sandbox_files *files, struct error *error)
{
    int version = sandbox_landlock_version();
    if (version == 0)
        return error_set(error, ST_UNSUPPORTED, "this kernel has no Landlock");
    if (files->writable->overflow || (files->readable != NULL && files->readable->overflow))
        return error_set(error, ST_TOO_LARGE, "too many paths, or one that is too long");
    uint64_t writes = WRITE_FILE | CHANGE_FOLDER;
    writes |= (version >= 2 ? REFER : 0) | (version >= 3 ? TRUNCATE : 0);
    const uint64_t reads = READ_FILE | READ_FOLDER;
    struct ruleset_attr attr = {EXECUTE | writes | (files->readable != NULL ? reads : 0)};
    int ruleset = (int)syscall(CREATE_RULESET, &attr, RULESET_ATTR_V1, 0);
    if (ruleset < 0)
        return error_set(error, ST_IO, "Landlock: %s", strerror(errno));
    bool good =
        permit_all(ruleset, files->writable,
                   (writes & ~(MAKE_CHARACTER | MAKE_BLOCK)) | (reads & attr.handled_access_fs));
    good = good && (files->readable == NULL || permit_all(ruleset, files->readable, reads));
    good = good && (!files->may_start_self ||
                    permit_self(ruleset, (EXECUTE | READ_FILE) & attr.handled_access_fs));
    good = good && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           syscall(RESTRICT_SELF, ruleset, 0) == 0;
    int failed = errno;
    close(ruleset);
    return good ? ST_OK : error_set(error, ST_IO, "Landlock: %s", strerror(failed));
}
