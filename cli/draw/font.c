/* Each letter is a number of 35 bits: seven rows of five points, from the top left (highest bit) to the bottom
 * right. */
#include "cli/draw/font.h"

#include <stdint.h>

/* ASCII from the space on. */
static const uint64_t letters[] = {
    0x000000000, 0x108421004, 0x294a00000, 0x295f57d4a, 0x11f4717c4, 0x632222263, 0x32544564d, 0x108800000, 0x088842082,
    0x208210888, 0x02aefbaa0, 0x0084f9080, 0x000003088, 0x0000f8000, 0x00000018c, 0x042222210, 0x3a33ae62e, 0x11842108e,
    0x3a211111f, 0x7c223062e, 0x08ca97c42, 0x7e1e0862e, 0x1910f462e, 0x7c2221084, 0x3a317462e, 0x3a317844c, 0x018c03180,
    0x018c03088, 0x088882082, 0x001f07c00, 0x208208888, 0x3a2111004, 0x3a37ade0e, 0x3a31fc631, 0x7a31f463e, 0x3a308422e,
    0x7a318c63e, 0x7e10f421f, 0x7e10f4210, 0x3a30bc62f, 0x4631fc631, 0x38842108e, 0x1c4210a4c, 0x4654c5251, 0x42108421f,
    0x4775ac631, 0x4739ace71, 0x3a318c62e, 0x7a31f4210, 0x3a318d64d, 0x7a31f5251, 0x3e107043e, 0x7c8421084, 0x46318c62e,
    0x46318c544, 0x4631ad771, 0x462a22a31, 0x462a21084, 0x7c222221f, 0x39084210e, 0x420820821, 0x38421084e, 0x115100000,
    0x00000001f, 0x208000000, 0x000e0be2f, 0x4216cc63e, 0x000e8422e, 0x042d9c62f, 0x000e8fe0e, 0x1928e2108, 0x3e318bc2e,
    0x4216cc631, 0x100c2108e, 0x080610a4c, 0x4212a6292, 0x30842108e, 0x001aad631, 0x0016cc631, 0x000e8c62e, 0x7a318fa10,
    0x3e318bc21, 0x0016cc210, 0x000e8383e, 0x211c42126, 0x00118c66d, 0x00118c544, 0x00118d6aa, 0x001151151, 0x46318bc2e,
    0x001f1111f, 0x0c8441083, 0x108421084, 0x608411098, 0x0009ac800,
};
enum { FIRST = ' ', COUNT = sizeof letters / sizeof *letters };

int font_drop(unsigned char letter) { return letter == 'g' || letter == 'p' || letter == 'q' || letter == 'y' ? 2 : 0; }

bool font_ink(unsigned char letter, int x, int y)
{
    int known = letter >= FIRST && letter < FIRST + COUNT ? letter : '?';
    return letters[known - FIRST] >> (FONT_WIDE * FONT_HIGH - 1 - (y * FONT_WIDE + x)) & 1;
}
