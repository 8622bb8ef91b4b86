#ifndef HEADS_HELP_H
#define HEADS_HELP_H

void heads_help(void);

#endif
