/* JPEG files that Pillow does not write: make_jpeg FILE COMPONENTS SPACE H V SCANS WIDTH HEIGHT RESTART. Used by make.py.
   SPACE is libjpeg's number of the stored colour space, H and V the first component's sampling factors, SCANS 0 one, 1 progressive, 2 one
   a component. */
#include <stdio.h>
#include <stdlib.h>
#include <jpeglib.h>

int main(int count, char **words) {
    struct jpeg_compress_struct jpeg;
    struct jpeg_error_mgr errors;
    jpeg_scan_info scans[4] = {{0}};
    int n[10] = {0};
    unsigned seed = 1;
    FILE *stream;
    JSAMPROW row;
    if (count != 10 || !(stream = fopen(words[1], "wb"))) return 1;
    for (int i = 2; i < 10; i++) n[i] = atoi(words[i]);
    jpeg.err = jpeg_std_error(&errors);
    jpeg_create_compress(&jpeg);
    jpeg_stdio_dest(&jpeg, stream);
    jpeg.image_width = (JDIMENSION)n[7];
    jpeg.image_height = (JDIMENSION)n[8];
    jpeg.input_components = n[2];
    jpeg.in_color_space = n[2] == 1 ? JCS_GRAYSCALE : n[2] == 3 ? JCS_RGB : JCS_CMYK;
    jpeg_set_defaults(&jpeg);
    jpeg_set_colorspace(&jpeg, (J_COLOR_SPACE)n[3]);
    jpeg_set_quality(&jpeg, 80, TRUE);
    jpeg.comp_info[0].h_samp_factor = n[4];
    jpeg.comp_info[0].v_samp_factor = n[5];
    if (n[3] == JCS_YCCK) {
        jpeg.comp_info[3].h_samp_factor = n[4];
        jpeg.comp_info[3].v_samp_factor = n[5];
    }
    jpeg.restart_interval = (unsigned)n[9];
    if (n[6] == 1) jpeg_simple_progression(&jpeg);
    for (int i = 0; n[6] == 2 && i < n[2]; i++) {
        scans[i].comps_in_scan = 1;
        scans[i].component_index[0] = i;
        scans[i].Se = 63;
        jpeg.scan_info = scans;
        jpeg.num_scans = n[2];
    }
    jpeg_start_compress(&jpeg, TRUE);
    row = malloc(jpeg.image_width * (size_t)n[2]);
    while (row && jpeg.next_scanline < jpeg.image_height) {
        int y = (int)jpeg.next_scanline;
        for (int x = 0; x < n[7]; x++)
            for (int k = 0; k < n[2]; k++) {
                seed = seed * 1103515245u + 12345u;
                row[x * n[2] + k] = (unsigned char)((x * 5 * (k + 1) + y * 3 * (3 - k) + (int)(seed >> 28)) ^ ((x / 9 + y / 7) % 3 == k % 3 ? 0x80 : 0));
            }
        jpeg_write_scanlines(&jpeg, &row, 1);
    }
    jpeg_finish_compress(&jpeg);
    jpeg_destroy_compress(&jpeg);
    free(row);
    return fclose(stream) != 0;
}
