/* Goal: the energy of all CPU packages is counted, also when a meter begins anew, and nothing is
 * counted twice. Where a meter is missing, unreadable or broken, the energy is unknown.
 *
 * Method: a folder of our own in the form of Linux's powercap folder. */
#include "host/energy.h"
#include "tests/check.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[] = "/tmp/cleave-test-energy-XXXXXX";

static void file_write(const char *domain, const char *file, const char *text)
{
    char path[PATH_MAX];
    snprintf(path, sizeof(path), "%s/%s/%s", folder, domain, file);
    FILE *out = fopen(path, "w");
    CHECK(out != NULL && fputs(text, out) >= 0 && fclose(out) == 0);
}

/* Makes the folder of a domain. Linux's file energy_uj can be read by root only. */
static void domain_make(const char *domain, const char *name, const char *greatest_uj,
                        const char *energy_uj)
{
    char path[PATH_MAX];
    snprintf(path, sizeof(path), "%s/%s", folder, domain);
    CHECK(mkdir(path, 0700) == 0);
    file_write(domain, "name", name);
    file_write(domain, "max_energy_range_uj", greatest_uj);
    file_write(domain, "energy_uj", energy_uj);
}

static void domain_remove(const char *domain)
{
    static const char *const files[] = {"name", "max_energy_range_uj", "energy_uj"};
    char path[PATH_MAX];
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        snprintf(path, sizeof(path), "%s/%s/%s", folder, domain, files[i]);
        CHECK(unlink(path) == 0);
    }
    snprintf(path, sizeof(path), "%s/%s", folder, domain);
    CHECK(rmdir(path) == 0);
}

static void test_no_folder(void)
{
    struct energy e;
    energy_open("/nowhere/powercap", &e);
    CHECK(e.package_count == 0 && energy_used_uj(&e) == 0);
    energy_close(&e);
    energy_open(folder, &e); /* No package is in it. */
    CHECK(e.package_count == 0 && energy_used_uj(&e) == 0);
    energy_close(&e);
}

static void test_packages(void)
{
    struct energy e;
    domain_make("intel-rapl:0", "package-0\n", "1000\n", "900\n");
    domain_make("intel-rapl:0:0", "core\n", "1000\n", "100\n");
    domain_make("intel-rapl:1", "package-1\n", "5000\n", "10\n");
    domain_make("intel-rapl:2", "psys\n", "5000\n", "10\n");
    domain_make("intel-rapl-mmio:0", "package-0\n", "1000\n", "900\n"); /* Package 0 again. */
    energy_open(folder, &e);
    CHECK(e.package_count == 2 && energy_used_uj(&e) == 0);
    file_write("intel-rapl:0", "energy_uj", "950\n");
    file_write("intel-rapl:0:0", "energy_uj", "150\n");
    file_write("intel-rapl:2", "energy_uj", "70\n");
    CHECK(energy_used_uj(&e) == 50);
    file_write("intel-rapl:1", "energy_uj", "40\n");
    CHECK(energy_used_uj(&e) == 80);
    file_write("intel-rapl:0", "energy_uj", "20\n"); /* From 950 over 1000 to 20. */
    CHECK(energy_used_uj(&e) == 150);
    CHECK(energy_used_uj(&e) == 150);
    energy_close(&e);
    CHECK(e.package_count == 0 && energy_used_uj(&e) == 0);
}

/* A meter that is broken for a while. The packages are those of test_packages. */
static void test_broken_meanwhile(void)
{
    static const char *const broken[] = {"",        "x\n",    "-5\n",
                                         "20 21\n", "1001\n", "99999999999999999999999\n"};
    struct energy e;
    energy_open(folder, &e);
    CHECK(e.package_count == 2);
    for (size_t i = 0; i < sizeof(broken) / sizeof(broken[0]); i++) {
        file_write("intel-rapl:0", "energy_uj", broken[i]);
        CHECKF(energy_used_uj(&e) == 0, "\"%s\"", broken[i]);
    }
    file_write("intel-rapl:0", "energy_uj", "25\n");
    CHECK(energy_used_uj(&e) == 5);
    energy_close(&e);
}

/* If one package cannot be read, the sum would be too small: it is unknown. */
static void test_broken_at_first(void)
{
    static const char *const files[] = {"energy_uj", "max_energy_range_uj"};
    struct energy e;
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        file_write("intel-rapl:1", files[i], "none\n");
        energy_open(folder, &e);
        CHECKF(e.package_count == 0 && energy_used_uj(&e) == 0, "%s", files[i]);
        energy_close(&e);
        file_write("intel-rapl:1", files[i], "40\n");
    }
    energy_open(folder, &e);
    CHECK(e.package_count == 2);
    energy_close(&e);
}

int main(void)
{
    CHECK(mkdtemp(folder) != NULL);
    test_no_folder();
    test_packages();
    test_broken_meanwhile();
    test_broken_at_first();
    domain_remove("intel-rapl:0");
    domain_remove("intel-rapl:0:0");
    domain_remove("intel-rapl:1");
    domain_remove("intel-rapl:2");
    domain_remove("intel-rapl-mmio:0");
    CHECK(rmdir(folder) == 0);
    return 0;
}
