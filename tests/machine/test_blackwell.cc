/* Tests of Blackwell's constants. Speaks TAP; ends with what was run. */
#include "blackwell.h"
#include "tap.h"

int main() {
    test_blackwell_constants();
    return finish();
}
