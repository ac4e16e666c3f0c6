/* gnuplot: see the header. SVG text goes through a temporary file, which is read back. */
#include "tools/report/gnuplot.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Check for gnuplot first, because the shell's message about a missing program would not say what
 * to do. */
#define COMMAND   "command -v gnuplot >/dev/null || exit 127; exec gnuplot"
#define NOT_FOUND 127
#define SVG_MOST  (64u << 20)

void gnuplot_quoted_write(const char *text, FILE *script)
{
    fputc('\'', script);
    for (; *text != 0; text++)
        if (*text == '\'')
            fputs("''", script);
        else
            fputc((unsigned char)*text < ' ' ? '?' : *text, script);
    fputc('\'', script);
}

static const char *terminal_of(const char *path)
{
    const char *dot = strrchr(path, '.');
    if (dot != NULL && strcmp(dot, ".svg") == 0)
        return "svg background rgb 'white'";
    if (dot != NULL && strcmp(dot, ".png") == 0)
        return "png";
    return NULL;
}

/* ST_UNSUPPORTED: the name does not end in .svg or .png. */
static enum status path_check(const char *path, struct error *error)
{
    return terminal_of(path) != NULL
               ? ST_OK
               : error_set(error, ST_UNSUPPORTED, "want a name that ends in .svg or .png");
}

enum status gnuplot_option_check(const char *path, struct error *error)
{
    if (path == NULL || path_check(path, error) == ST_OK)
        return ST_OK;
    error_prefix(error, "--plot %s", path);
    return ST_USAGE;
}

static enum status run(const struct gnuplot_picture *picture, const char *terminal,
                       const char *path, struct error *error)
{
    const struct sigaction ignore = {.sa_handler = SIG_IGN};
    struct sigaction before;
    FILE *script = popen(COMMAND, "we");
    if (script == NULL)
        return error_set(error, ST_IO, "gnuplot cannot be started");
    /* gnuplot may exit before it has read the whole script. */
    sigaction(SIGPIPE, &ignore, &before);
    fprintf(script, "set terminal %s size %u,%u\nset output ", terminal, picture->width,
            picture->height);
    gnuplot_quoted_write(path, script);
    fputc('\n', script);
    enum status status = picture->draw(picture->self, script, error);
    int exit_status = pclose(script);
    sigaction(SIGPIPE, &before, NULL);
    if (status != ST_OK)
        return status;
    if (exit_status == NOT_FOUND << 8)
        return error_set(error, ST_UNSUPPORTED, "there is no gnuplot (Debian: gnuplot-nox)");
    return exit_status == 0 ? ST_OK : error_set(error, ST_IO, "gnuplot failed");
}

enum status gnuplot_file_draw(const struct gnuplot_picture *picture, const char *path,
                              struct error *error)
{
    enum status status = path_check(path, error);
    if (status != ST_OK)
        return status;
    /* Create the file first, because gnuplot's own error message would not name the option. */
    FILE *file = fopen(path, "we");
    if (file == NULL)
        return error_set(error, ST_IO, "cannot be written");
    fclose(file);
    status = run(picture, terminal_of(path), path, error);
    if (status != ST_OK)
        unlink(path); /* The file is empty, or holds half a picture. */
    return status;
}

static enum status svg_read(const char *path, char **svg_out, struct error *error)
{
    FILE *file = fopen(path, "re");
    long size = -1;
    if (file != NULL && fseek(file, 0, SEEK_END) == 0)
        size = ftell(file);
    char *text = size > 0 && size < (long)SVG_MOST ? malloc((size_t)size + 1) : NULL;
    enum status status = ST_OK;
    if (text == NULL || fseek(file, 0, SEEK_SET) != 0 ||
        fread(text, 1, (size_t)size, file) != (size_t)size)
        status = error_set(error, ST_IO, "gnuplot's picture could not be read");
    if (file != NULL)
        fclose(file);
    if (status == ST_OK) {
        text[size] = 0;
        const char *begin = strstr(text, "<svg");
        if (begin == NULL)
            status = error_set(error, ST_IO, "gnuplot wrote no picture");
        else
            memmove(text, begin, strlen(begin) + 1);
    }
    if (status == ST_OK)
        *svg_out = text;
    else
        free(text);
    return status;
}

enum status gnuplot_svg_draw(const struct gnuplot_picture *picture, char **svg_out,
                             struct error *error)
{
    char path[] = "/tmp/cleave-picture.XXXXXX";
    int fd = mkstemp(path);
    if (fd < 0)
        return error_set(error, ST_IO, "%s: cannot be made", path);
    close(fd);
    enum status status = run(picture, terminal_of(".svg"), path, error);
    if (status == ST_OK)
        status = svg_read(path, svg_out, error);
    unlink(path);
    return status;
}
