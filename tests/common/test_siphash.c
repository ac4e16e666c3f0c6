/* Goal: siphash is SipHash-2-4. Method: the test vectors of its authors. */
#include "common/siphash.h"
#include "tests/check.h"

int main(void)
{
    /* Key 00 01 … 0f; inputs of 0, 1, 7, 8 and 15 bytes 00 01 02 …. */
    static const uint64_t key[2] = {0x0706050403020100u, 0x0f0e0d0c0b0a0908u};
    static const struct {
        size_t bytes;
        uint64_t hash;
    } vectors[] = {{0, 0x726fdb47dd0e0e31u},
                   {1, 0x74f839c593dc67fdu},
                   {7, 0xab0200f58b01d137u},
                   {8, 0x93f5f5799a932462u},
                   {15, 0xa129ca6149be45e5u}};
    uint8_t data[15];
    for (uint8_t i = 0; i < sizeof(data); i++)
        data[i] = i;
    for (size_t i = 0; i < sizeof(vectors) / sizeof(vectors[0]); i++)
        CHECKF(siphash(key, data, vectors[i].bytes) == vectors[i].hash, "%zu bytes",
               vectors[i].bytes);
    return 0;
}
