/* Settings of pictures that cannot be: each is named, and what lies just within its bounds is taken. */
#include <math.h>

#define MEGAVIT_IMPLEMENTATION
#include "megavit.h"
#include "support.h"

static mgv__pixels_config make_config(int32_t size) {
    mgv__pixels_config c;
    int i;
    memset(&c, 0, sizeof c);
    c.size = size;
    c.resample = MGV__RESAMPLE_BICUBIC;
    c.width = c.height = 32;
    c.shortest_edge = 32;
    c.max_patches = 16;
    c.factor = 16;
    c.min_pixels = 256;
    c.max_pixels = 4096;
    c.do_resize = c.do_rescale = c.do_normalize = 1;
    c.rescale_factor = 1.0 / 255;
    for (i = 0; i < 3; i++) c.mean[i] = c.std[i] = 0.5;
    c.temporal_patch = 1;
    c.patch = 8;
    c.merge = 2;
    return c;
}
static void check(const mgv__pixels_config *c, mgv_result code, const char *words, const char *change) {
    mgv_error error;
    mgv_result result;
    memset(&error, 0, sizeof error);
    result = mgv__pixels_config_check(c, &error);
    if (result != code || !strstr(error.message, words)) fail_msg("%s: %s, %s", change, mgv_result_name(result), error.message);
}
/* size, what is changed in c, its sentence */
#define BAD(size, change, words) \
    do { \
        mgv__pixels_config c = make_config(size); \
        check(&c, MGV_OK, "", "nothing"); \
        change; \
        check(&c, MGV_ERROR_MODEL, words, #change); \
    } while (0)
#define GOOD(size, change) \
    do { \
        mgv__pixels_config c = make_config(size); \
        change; \
        check(&c, MGV_OK, "", #change); \
    } while (0)

static void patches_and_sizes(void **state) {
    mgv__pixels_config filter = make_config(MGV__SIZE_EXACT);
    (void)state;
    filter.resample = MGV__RESAMPLE_LANCZOS - 1;
    check(&filter, MGV_ERROR_UNSUPPORTED, "resample 0", "resample");
    filter.resample = MGV__RESAMPLE_BICUBIC + 1;
    check(&filter, MGV_ERROR_UNSUPPORTED, "resample 4", "resample");
    filter.do_resize = 0; /* it is not used then */
    check(&filter, MGV_OK, "", "do_resize");
    BAD(MGV__SIZE_AREA, c.patch = 0, "patches of 0 pixels");
    BAD(MGV__SIZE_AREA, c.patch = MGV__MAX_SIDE + 1, "patches of");
    BAD(MGV__SIZE_AREA, c.merge = 0, "merged 0 by 0");
    BAD(MGV__SIZE_AREA, c.merge = MGV__MAX_SIDE + 1, "merged");
    BAD(MGV__SIZE_AREA, c.temporal_patch = 0, "and 0 frames");
    BAD(MGV__SIZE_AREA, c.temporal_patch = MGV__MAX_FRAMES + 1, "frames");
    BAD(MGV__SIZE_EXACT, c.width = 0, "a picture size of 0 x 32");
    BAD(MGV__SIZE_EXACT, c.height = 0, "a picture size of 32 x 0");
    BAD(MGV__SIZE_EXACT, c.width = MGV__MAX_SIDE + 1, "a picture size of");
    BAD(MGV__SIZE_EXACT, c.height = MGV__MAX_SIDE + 1, "a picture size of");
    BAD(MGV__SIZE_EXACT, c.width = 7, "7 x 32 is smaller than a patch of 8");
    BAD(MGV__SIZE_EXACT, c.height = 7, "32 x 7 is smaller than a patch of 8");
    GOOD(MGV__SIZE_EXACT, c.height = c.width = 8);
}
static void sizes_that_pictures_become(void **state) {
    (void)state;
    BAD(MGV__SIZE_EXACT, c.width = c.height = 0, "no size that pictures become");
    BAD(MGV__SIZE_WITHIN, c.width = 0, "no size that pictures become");
    BAD(MGV__SIZE_WITHIN, c.height = 0, "no size that pictures become");
    BAD(MGV__SIZE_EDGES, c.shortest_edge = 0, "no size that pictures become");
    BAD(MGV__SIZE_PATCHES, c.max_patches = 0, "no size that pictures become");
    BAD(MGV__SIZE_AREA, c.factor = 8, "pictures in multiples of 8 pixels; 2 patches of 8");
    BAD(MGV__SIZE_AREA, (c.patch = MGV__MAX_SIDE, c.factor = 2 * MGV__MAX_SIDE), "pictures in multiples of");
    BAD(MGV__SIZE_AREA, c.min_pixels = 0, "a picture area from 0");
    BAD(MGV__SIZE_AREA, c.min_pixels = 4097, "a picture area from 4097 to 4096");
    GOOD(MGV__SIZE_AREA, c.min_pixels = 4096);
    GOOD(MGV__SIZE_AREA, (c.do_resize = 0, c.min_pixels = 0));
    GOOD(MGV__SIZE_EDGES, (c.do_resize = 0, c.shortest_edge = 0));
}
static void numbers_of_pixels(void **state) {
    (void)state;
    BAD(MGV__SIZE_EXACT, (c.in_floats = 1, c.do_rescale = 0), "wants do_rescale");
    BAD(MGV__SIZE_EXACT, c.rescale_factor = 0, "rescale_factor");
    BAD(MGV__SIZE_EXACT, c.rescale_factor = -1.01e12, "rescale_factor");
    BAD(MGV__SIZE_EXACT, c.rescale_factor = (double)NAN, "rescale_factor");
    BAD(MGV__SIZE_EXACT, c.mean[1] = -1.01e6, "image_mean[1]");
    BAD(MGV__SIZE_EXACT, c.mean[2] = (double)NAN, "image_mean[2]");
    BAD(MGV__SIZE_EXACT, c.std[0] = 0, "image_std[0]");
    BAD(MGV__SIZE_EXACT, c.std[1] = 1.01e6, "image_std[1]");
    BAD(MGV__SIZE_EXACT, c.std[2] = (double)NAN, "image_std[2]");
    GOOD(MGV__SIZE_EXACT, (c.do_normalize = 0, c.std[0] = 0));
    GOOD(MGV__SIZE_EXACT, (c.do_rescale = 0, c.rescale_factor = 0));
    GOOD(MGV__SIZE_EXACT, (c.rescale_factor = -1e12, c.mean[0] = -1e6, c.std[0] = -1e-6, c.std[1] = 1e6));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(patches_and_sizes),
        cmocka_unit_test(sizes_that_pictures_become),
        cmocka_unit_test(numbers_of_pixels),
    };
    return cmocka_run_group_tests_name("settings of pictures", tests, NULL, NULL);
}
