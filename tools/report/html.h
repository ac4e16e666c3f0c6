/* html: writes a report as one HTML file without references to other files. `cleave simulate` and
 * `cleave plan` call the functions on the main thread: html_open, html_head_write, then headings,
 * texts and pictures, at last html_data_write and html_close. The functions have no state. The
 * caller makes the texts and the scripts of the pictures. */
#ifndef TOOLS_REPORT_HTML_H
#define TOOLS_REPORT_HTML_H

#include "tools/report/gnuplot.h"

/* Creates the file of the option --html; html_close closes it. ST_IO: the file cannot be made. */
enum status html_open(const char *path, FILE **out, struct error *error);
/* Closes the file. If `status` is not ST_OK, puts "--html PATH" before the error's text and returns
 * `status`. Otherwise returns ST_OK, or ST_IO if something could not be written. */
enum status html_close(FILE *out, const char *path, enum status status, struct error *error);

/* Writes the head of the file, the title as a heading, and the command line: "cleave" and the
 * arguments. argv[0] is the subcommand. */
void html_head_write(const char *title, int argc, char *const *argv, FILE *out);
void html_heading_write(const char *text, FILE *out); /* Writes a heading of a section. */
/* Writes the output of `print` as preformatted text. ST_NO_MEMORY: memory runs out. */
enum status html_output_write(void (*print)(const void *self, FILE *out), const void *self,
                              FILE *out, struct error *error);
/* Writes a picture. If gnuplot is not installed, writes a sentence instead, prints a warning
 * "`command`: …" on standard error, and returns ST_OK. Other errors are those of
 * gnuplot_svg_draw. */
enum status html_picture_write(const struct gnuplot_picture *picture, const char *command,
                               FILE *out, struct error *error);
/* Writes `text` in a section that the reader can unfold, and the end of the file. */
void html_data_write(const char *text, FILE *out);

#endif
