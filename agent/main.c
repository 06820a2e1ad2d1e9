/* raven-agent: the program on a volunteer's machine. Only this file leaves the process by return.
 */
#include "agent/cli.h"

int main(int argc, char **argv)
{
    return cli_main(argc, argv);
}
