/* fuzz: the two functions that a fuzz target defines. A target is built in two ways:
 *
 * - As a test (the default), linked with tests/fuzz_driver.c: runs every seed input unchanged, then
 *   mutated inputs for CLEAVE_FUZZ_SECONDS (1) seconds: flipped bits, changed length fields, cuts,
 *   splices, inserted and removed bytes. It prints its seed; on a crash it prints the round, and
 *   CLEAVE_SEED=… with CLEAVE_FUZZ_ROUND=… repeats only that round. Inputs are in memory of exactly
 *   their size, so that ASan detects a read beyond the end. `target FILE…` runs files instead.
 * - With libFuzzer: `CC=clang meson setup build-fuzz -Dfuzz=true -Db_sanitize=address,undefined
 *   -Db_lundef=false`. CLEAVE_FUZZ_SEEDS=DIR makes the target write its seeds there first:
 *   `CLEAVE_FUZZ_SEEDS=corpus build-fuzz/tests/model/file/fuzz_gguf corpus`.
 *
 * In meson: executable('fuzz_x', 'fuzz_x.c', fuzz_sources, c_args : fuzz_args, link_args :
 * fuzz_link_args, …) and test('fuzz_x', …, args : fuzz_test_args, timeout : 60).
 *
 * The driver or libFuzzer calls both functions on the main thread. A target checks only that an
 * input does no harm: the tests beside it check right results. */
#ifndef TESTS_FUZZ_H
#define TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>

/* Gives one input to the code under test. Returns 0; a failed check aborts. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Writes seed input `index` (from 0) to the buffer and returns its size; 0 = no more seeds. */
size_t fuzz_seed(unsigned index, uint8_t *buffer, size_t capacity);

#endif
