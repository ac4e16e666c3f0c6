/* curl: the functions of libcurl that tools/replay and membership/ call. The library is loaded by
 * curl_global_init. If it were linked, every process of a cluster would load libcurl and the two
 * dozen libraries that it needs: 3 ms of each start and 4 MiB of each machine, although few
 * processes use it.
 *
 * Options and results have one argument of a pointer's size, because all that we pass are of that
 * size (long, pointer, function). */
#include <assert.h>
#include <curl/curl.h>
#include <dlfcn.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#undef curl_easy_setopt /* These are macros that check types. */
#undef curl_easy_getinfo
#undef curl_multi_setopt

static_assert(sizeof(long) == sizeof(void *), "an option is passed on as a pointer");

static struct {
    CURLcode (*global_init)(long flags);
    void (*global_cleanup)(void);
    CURL *(*easy_init)(void);
    void (*easy_cleanup)(CURL *curl);
    CURLcode (*easy_setopt)(CURL *curl, CURLoption option, ...);
    CURLcode (*easy_getinfo)(CURL *curl, CURLINFO info, ...);
    CURLcode (*easy_perform)(CURL *curl);
    const char *(*easy_strerror)(CURLcode code);
    CURLM *(*multi_init)(void);
    CURLMcode (*multi_cleanup)(CURLM *multi);
    CURLMcode (*multi_setopt)(CURLM *multi, CURLMoption option, ...);
    CURLMcode (*multi_add_handle)(CURLM *multi, CURL *curl);
    CURLMcode (*multi_remove_handle)(CURLM *multi, CURL *curl);
    CURLMcode (*multi_perform)(CURLM *multi, int *running);
    CURLMcode (*multi_poll)(CURLM *multi, struct curl_waitfd *fds, unsigned int count, int ms,
                            int *ready);
    CURLMcode (*multi_socket_action)(CURLM *multi, curl_socket_t fd, int what, int *running);
    CURLMsg *(*multi_info_read)(CURLM *multi, int *left);
    struct curl_slist *(*slist_append)(struct curl_slist *list, const char *text);
    void (*slist_free_all)(struct curl_slist *list);
} real;

static const struct {
    const char *name;
    void *at;
} symbols[] = {
    {"curl_global_init", &real.global_init},
    {"curl_global_cleanup", &real.global_cleanup},
    {"curl_easy_init", &real.easy_init},
    {"curl_easy_cleanup", &real.easy_cleanup},
    {"curl_easy_setopt", &real.easy_setopt},
    {"curl_easy_getinfo", &real.easy_getinfo},
    {"curl_easy_perform", &real.easy_perform},
    {"curl_easy_strerror", &real.easy_strerror},
    {"curl_multi_init", &real.multi_init},
    {"curl_multi_cleanup", &real.multi_cleanup},
    {"curl_multi_setopt", &real.multi_setopt},
    {"curl_multi_add_handle", &real.multi_add_handle},
    {"curl_multi_remove_handle", &real.multi_remove_handle},
    {"curl_multi_perform", &real.multi_perform},
    {"curl_multi_poll", &real.multi_poll},
    {"curl_multi_socket_action", &real.multi_socket_action},
    {"curl_multi_info_read", &real.multi_info_read},
    {"curl_slist_append", &real.slist_append},
    {"curl_slist_free_all", &real.slist_free_all},
};

static CURLcode load(void)
{
    void *library = dlopen("libcurl.so.4", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL)
        library = dlopen("libcurl-gnutls.so.4", RTLD_NOW | RTLD_LOCAL);
    for (size_t i = 0; i < sizeof(symbols) / sizeof(symbols[0]); i++) {
        void *found = library != NULL ? dlsym(library, symbols[i].name) : NULL;
        if (found == NULL)
            return CURLE_FAILED_INIT;
        memcpy(symbols[i].at, &found, sizeof(found));
    }
    return CURLE_OK;
}

/* Also returns CURLE_FAILED_INIT if libcurl is not installed. */
CURLcode curl_global_init(long flags)
{
    CURLcode code = load();
    return code == CURLE_OK ? real.global_init(flags) : code;
}

void curl_global_cleanup(void)
{
    real.global_cleanup();
}

/* Reads the one argument after `last`. */
#define ARGUMENT(last, out)                                                                        \
    do {                                                                                           \
        va_list arguments;                                                                         \
        va_start(arguments, last);                                                                 \
        (out) = va_arg(arguments, void *);                                                         \
        va_end(arguments);                                                                         \
    } while (0)

CURLcode curl_easy_setopt(CURL *curl, CURLoption option, ...)
{
    void *value;
    ARGUMENT(option, value);
    return real.easy_setopt(curl, option, value);
}

CURLcode curl_easy_getinfo(CURL *curl, CURLINFO info, ...)
{
    void *value;
    ARGUMENT(info, value);
    return real.easy_getinfo(curl, info, value);
}

CURLMcode curl_multi_setopt(CURLM *multi, CURLMoption option, ...)
{
    void *value;
    ARGUMENT(option, value);
    return real.multi_setopt(multi, option, value);
}

CURL *curl_easy_init(void)
{
    return real.easy_init();
}

void curl_easy_cleanup(CURL *curl)
{
    real.easy_cleanup(curl);
}

CURLcode curl_easy_perform(CURL *curl)
{
    return real.easy_perform(curl);
}

const char *curl_easy_strerror(CURLcode code)
{
    return real.easy_strerror(code);
}

CURLM *curl_multi_init(void)
{
    return real.multi_init();
}

CURLMcode curl_multi_cleanup(CURLM *multi)
{
    return real.multi_cleanup(multi);
}

CURLMcode curl_multi_add_handle(CURLM *multi, CURL *curl)
{
    return real.multi_add_handle(multi, curl);
}

CURLMcode curl_multi_remove_handle(CURLM *multi, CURL *curl)
{
    return real.multi_remove_handle(multi, curl);
}

CURLMcode curl_multi_perform(CURLM *multi, int *running)
{
    return real.multi_perform(multi, running);
}

CURLMcode curl_multi_poll(CURLM *multi, struct curl_waitfd *fds, unsigned int count, int ms,
                          int *ready)
{
    return real.multi_poll(multi, fds, count, ms, ready);
}

CURLMcode curl_multi_socket_action(CURLM *multi, curl_socket_t fd, int what, int *running)
{
    return real.multi_socket_action(multi, fd, what, running);
}

CURLMsg *curl_multi_info_read(CURLM *multi, int *left)
{
    return real.multi_info_read(multi, left);
}

struct curl_slist *curl_slist_append(struct curl_slist *list, const char *text)
{
    return real.slist_append(list, text);
}

void curl_slist_free_all(struct curl_slist *list)
{
    real.slist_free_all(list);
}
