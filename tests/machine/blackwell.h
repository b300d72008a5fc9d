/* Tests of what is modelled of Blackwell. test_blackwell.cc */
#ifndef MACHINE_BLACKWELL_H
#define MACHINE_BLACKWELL_H

void test_blackwell_constants(void);

#endif
