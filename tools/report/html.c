/* html: see the header. */
#include "tools/report/html.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum status html_open(const char *path, FILE **out, struct error *error)
{
    *out = fopen(path, "we");
    return *out != NULL ? ST_OK : error_set(error, ST_IO, "--html %s: %s", path, strerror(errno));
}

enum status html_close(FILE *out, const char *path, enum status status, struct error *error)
{
    bool bad = ferror(out) != 0;
    bad |= fclose(out) != 0;
    if (status != ST_OK)
        error_prefix(error, "--html %s", path);
    return status == ST_OK && bad ? error_set(error, ST_IO, "--html %s: cannot be written", path)
                                  : status;
}

/* Writes the text with the characters of HTML replaced. */
static void escaped_write(const char *text, FILE *out)
{
    for (; *text != 0; text++)
        if (*text == '<')
            fputs("&lt;", out);
        else if (*text == '&')
            fputs("&amp;", out);
        else
            fputc(*text, out);
}

void html_head_write(const char *title, int argc, char *const *argv, FILE *out)
{
    fputs("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>", out);
    escaped_write(title, out);
    fputs("</title>\n<style>body{font:15px sans-serif;margin:2em}pre{font-size:12px;"
          "overflow-x:auto;background:#f4f4f4;padding:1em}svg{max-width:100%;height:auto}</style>"
          "</head><body>\n<h1>",
          out);
    escaped_write(title, out);
    fputs("</h1>\n<pre>cleave", out);
    for (int i = 0; i < argc; i++) {
        fputc(' ', out);
        escaped_write(argv[i], out);
    }
    fputs("</pre>\n", out);
}

void html_heading_write(const char *text, FILE *out)
{
    fputs("<h2>", out);
    escaped_write(text, out);
    fputs("</h2>\n", out);
}

enum status html_output_write(void (*print)(const void *self, FILE *out), const void *self,
                              FILE *out, struct error *error)
{
    char *text = NULL;
    size_t bytes;
    FILE *memory = open_memstream(&text, &bytes);
    if (memory == NULL)
        return error_set(error, ST_NO_MEMORY, "out of memory");
    print(self, memory);
    if (fclose(memory) != 0) {
        free(text);
        return error_set(error, ST_NO_MEMORY, "out of memory");
    }
    fputs("<pre>", out);
    escaped_write(text, out);
    fputs("</pre>\n", out);
    free(text);
    return ST_OK;
}

enum status html_picture_write(const struct gnuplot_picture *picture, const char *command,
                               FILE *out, struct error *error)
{
    char *svg = NULL;
    enum status status = gnuplot_svg_draw(picture, &svg, error);
    if (status == ST_UNSUPPORTED) {
        fprintf(out, "<p>No pictures: %s.</p>\n", error->text);
        fprintf(stderr, "%s: no pictures: %s\n", command, error->text);
        return ST_OK;
    }
    if (status == ST_OK)
        fprintf(out, "%s\n", svg);
    free(svg);
    return status;
}

void html_data_write(const char *text, FILE *out)
{
    fputs("<details><summary>Data</summary><pre>", out);
    escaped_write(text, out);
    fputs("</pre></details>\n</body></html>\n", out);
}
