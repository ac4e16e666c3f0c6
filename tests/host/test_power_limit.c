/* Goal: the power of all CPU packages is limited together, or not at all, and the former limits come
 * back, unless someone else has changed them meanwhile.
 *
 * Method: a folder of our own in the form of Linux's powercap folder. */
#include "host/power_limit.h"
#include "tests/check.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[] = "/tmp/cleave-test-power-XXXXXX";
static const char *const files[] = {"name", "constraint_0_name", "constraint_0_power_limit_uw"};
static const char *const packages[] = {"intel-rapl:0", "intel-rapl:1"};

static void path_make(char *out, const char *package, const char *file)
{
    snprintf(out, PATH_MAX, "%s/%s/%s", folder, package, file);
}

static void file_write(const char *package, const char *file, const char *text)
{
    char path[PATH_MAX];
    path_make(path, package, file);
    FILE *out = fopen(path, "w");
    CHECK(out != NULL && fputs(text, out) >= 0 && fclose(out) == 0);
}

static unsigned long limit_of(const char *package)
{
    char path[PATH_MAX];
    unsigned long uw;
    path_make(path, package, "constraint_0_power_limit_uw");
    FILE *in = fopen(path, "r");
    CHECK(in != NULL && fscanf(in, "%lu", &uw) == 1 && fclose(in) == 0);
    return uw;
}

static void check_refused(enum status want, const char *text)
{
    struct power_limit limit;
    struct error error;
    CHECK(power_limit_set(folder, 200, &limit, &error) == want);
    CHECKF(strstr(error.text, text) != NULL, "%s", error.text);
    CHECK(limit.package_count == 0);
    power_limit_restore(&limit);
}

static void packages_make(void)
{
    char path[PATH_MAX];
    for (int i = 0; i < 2; i++) {
        path_make(path, packages[i], "");
        CHECK(mkdir(path, 0700) == 0);
        file_write(packages[i], "name", i == 0 ? "package-0\n" : "package-1\n");
        file_write(packages[i], "constraint_0_name", "long_term\n");
        file_write(packages[i], "constraint_0_power_limit_uw", "350000000\n");
    }
}

static void test_set_and_restored(void)
{
    struct power_limit limit;
    struct error error;
    CHECK(power_limit_set(folder, 201, &limit, &error) == ST_OK && limit.package_count == 2);
    CHECK(limit_of("intel-rapl:0") == 100500000 && limit_of("intel-rapl:1") == 100500000);
    file_write("intel-rapl:1", "constraint_0_power_limit_uw", "120000000\n"); /* An operator. */
    power_limit_restore(&limit);
    CHECK(limit_of("intel-rapl:0") == 350000000 && limit_of("intel-rapl:1") == 120000000);
    CHECK(limit.package_count == 0);
    file_write("intel-rapl:1", "constraint_0_power_limit_uw", "350000000\n");
}

/* One package cannot be limited: the other ones keep their limits, too. */
static void test_all_or_nothing(void)
{
    char path[PATH_MAX];
    for (int i = 0; i < 2; i++) {
        file_write(packages[i], "constraint_0_power_limit_uw", "unknown\n");
        check_refused(ST_IO, packages[i]);
        CHECK(limit_of(packages[1 - i]) == 350000000);
        file_write(packages[i], "constraint_0_power_limit_uw", "350000000\n");
        file_write(packages[i], "constraint_0_name", "peak_power\n");
        check_refused(ST_UNSUPPORTED, packages[i]);
        file_write(packages[i], "constraint_0_name", "long_term\n");
        CHECK(limit_of("intel-rapl:0") == 350000000 && limit_of("intel-rapl:1") == 350000000);
    }
    path_make(path, "intel-rapl:1", "constraint_0_power_limit_uw");
    CHECK(unlink(path) == 0);
    check_refused(ST_IO, "No such file or directory");
    CHECK(limit_of("intel-rapl:0") == 350000000);
    file_write("intel-rapl:1", "constraint_0_power_limit_uw", "1\n");
}

int main(void)
{
    CHECK(mkdtemp(folder) != NULL);
    check_refused(ST_UNSUPPORTED, "has no CPU package");
    packages_make();
    test_set_and_restored();
    test_all_or_nothing();
    char path[PATH_MAX];
    for (int i = 0; i < 2; i++) {
        for (size_t f = 0; f < sizeof(files) / sizeof(files[0]); f++) {
            path_make(path, packages[i], files[f]);
            CHECK(unlink(path) == 0);
        }
        path_make(path, packages[i], "");
        CHECK(rmdir(path) == 0);
    }
    CHECK(rmdir(folder) == 0);
    return 0;
}
