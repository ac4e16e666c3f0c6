/* Goal: whoever loads JSON learns whether memory ran out, the text is wrong (and where), or the
 * file cannot be read. Method: the three ways of loading, with an allocator that fails after 0, 1,
 * 2 … allocations, with wrong texts, and with files that are not there or are folders. */
#include "common/json.h"

#include "tests/check.h"
#include "tests/scarce_memory.h"

#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static char path[] = "/tmp/cleave-json-XXXXXX";

enum way { TEXT, FILE_NAME, STREAM, WAYS };

static enum status load(enum way way, const char *text, json_t **out, json_error_t *why)
{
    if (way == TEXT)
        return json_text_load(text, strlen(text), JSON_REJECT_DUPLICATES, out, why);
    FILE *file = fopen(path, "w+");
    CHECK(file != NULL && fputs(text, file) >= 0 && fflush(file) == 0);
    rewind(file);
    enum status status = way == FILE_NAME
                             ? json_file_load(path, JSON_REJECT_DUPLICATES, out, why)
                             : json_stream_load(file, JSON_REJECT_DUPLICATES, out, why);
    fclose(file);
    return status;
}

/* Loads the text with more and more memory, until the result is another one. */
static void check_no_memory(enum way way, const char *text, enum status wanted)
{
    enum status status = ST_NO_MEMORY;
    uint32_t count = 0;
    json_t *root = NULL;
    json_error_t why;
    json_set_alloc_funcs(scarce_malloc, free);
    for (; status == ST_NO_MEMORY; count++) {
        scarce_allocations_left = count;
        status = load(way, text, &root, &why);
        CHECK((status == ST_OK) == (root != NULL));
        CHECKF(status != ST_NO_MEMORY || strcmp(why.text, "out of memory") == 0, "%s", why.text);
    }
    json_decref(root);
    json_set_alloc_funcs(malloc, free);
    CHECKF(status == wanted && count > 5, "way %d: status %d after %u: %s", way, status, count,
           why.text);
}

static void check_wrong(enum way way)
{
    json_t *root;
    json_error_t why;
    CHECK(load(way, "{\"a\": 1,\n \"b\": x}", &root, &why) == ST_INVALID && root == NULL);
    CHECKF(why.line == 2 && why.column == 7 && strstr(why.text, "'x'") != NULL, "%d:%d: %s",
           why.line, why.column, why.text);
    CHECK(load(way, "[1e999]", &root, &why) == ST_INVALID);
    CHECK(json_error_code(&why) == json_error_numeric_overflow);
    CHECK(load(way, "", &root, &why) == ST_INVALID && why.line == 1);
}

static void check_unreadable(void)
{
    json_t *root;
    json_error_t why;
    CHECK(json_file_load("/nowhere/a.json", 0, &root, &why) == ST_IO && root == NULL);
    CHECKF(why.line <= 0 && strcmp(why.text, "No such file or directory") == 0, "%s", why.text);
    CHECK(json_file_load("/tmp", 0, &root, &why) == ST_IO && root == NULL);
    CHECKF(why.line <= 0 && strcmp(why.text, "Is a directory") == 0, "%s", why.text);
}

static bool memory_ends; /* malloc returns NULL. */

void *__real_malloc(size_t bytes);
void *__wrap_malloc(size_t bytes);

void *__wrap_malloc(size_t bytes)
{
    return memory_ends ? NULL : __real_malloc(bytes);
}

/* A process that has called json_exit_without_memory makes values, and ends when it cannot. */
static void check_exit(void)
{
    int status;
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        json_exit_without_memory();
        json_t *object = json_object();
        memory_ends = json_object_set_new(object, "a", json_string("b")) == 0;
        json_object_set_new(object, "c", json_string("d"));
        _exit(2);
    }
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECKF(WIFEXITED(status) && WEXITSTATUS(status) == 1, "status %d", status);
}

int main(void)
{
    json_t *root;
    json_error_t why;
    int fd = mkstemp(path);
    CHECK(fd >= 0 && close(fd) == 0);
    for (enum way way = TEXT; way < WAYS; way++) {
        check_no_memory(way, "{\"model\": [1, \"a\", 2.5]}", ST_OK);
        check_no_memory(way, "{\"model\": [1, \"a\", 2.5]} 7", ST_INVALID);
        check_wrong(way);
    }
    CHECK(json_text_load(NULL, 0, 0, &root, &why) == ST_INVALID && root == NULL);
    check_unreadable();
    check_exit();
    CHECK(unlink(path) == 0);
    return 0;
}
