/* SPDX-License-Identifier: Apache-2.0 */
/* What is wrong in the configuration is a warning with file and line; the rest counts. */
#include "config.h"
#include "../tap.h"
#include "probe.h"

static char last[1024];
static int warnings;

static void on_warning(const char *message, void *userdata)
{
	warnings++;
	(void) text_format(last, sizeof(last), "%s", message);
	printf("# %s\n", message);
}

static struct config c;

static void parse(const char *text)
{
	warnings = 0;
	last[0] = 0;
	config_parse(&c, "x.conf", text, strlen(text), on_warning, NULL);
}

static int at(const char *name)
{
	for (int i = 0; probes[i]; i++)
		if (strcmp(probes[i]->name, name) == 0)
			return i;
	return -1;
}

int main(void)
{
	config_init(&c);
	ok(c.probes[at("imds")].enabled && c.textfile_dir[0] == 0);
	parse("# comment\n; comment\n\n[Nodewhy]\nTextfileDir = /var/lib/node_exporter \n"
	      "[Probe imds]\nEnabled=no\n[Probe dns]\nIntervalSec=2.5\nTimeoutSec=3s\r\n");
	ok(warnings == 0 && strcmp(c.textfile_dir, "/var/lib/node_exporter") == 0);
	ok(!c.probes[at("imds")].enabled && c.probes[at("dns")].enabled);
	ok(c.probes[at("dns")].every == 2500000 && c.probes[at("dns")].timeout == 3000000);
	parse("[Probe imds]\nEnabled=YES");
	ok(warnings == 0 && c.probes[at("imds")].enabled); /* later wins; no newline at the end */

	parse("[Nodewhy]\nConsole=no\n");
	ok(warnings == 0 && !c.console);
	parse("[Nodewhy]\nConsole=perhaps\n");
	ok(warnings == 1 && !c.console);

	parse("[Probe imds]\nEnabled=maybe\n");
	ok(warnings == 1 && strncmp(last, "x.conf:2: ", 10) == 0 && c.probes[at("imds")].enabled);
	parse("[Probe imds]\nFoo=1\nEnabled=no\n");
	ok(warnings == 1 && strstr(last, "Foo") && !c.probes[at("imds")].enabled);
	parse("[Probe nonsense]\nEnabled=no\n");
	ok(warnings == 1 && strstr(last, "nonsense"));
	parse("[Nodewhy]\nTextfileDir=relative\n");
	ok(warnings == 1 && strcmp(c.textfile_dir, "/var/lib/node_exporter") == 0);
	parse("[Nodewhy]\nTextfileDir=\n");
	ok(warnings == 0 && c.textfile_dir[0] == 0); /* empty resets, as systemd's own */
	ok(!c.subnet_watch.on && c.subnet_watch.low_percent == 20 &&
	   c.subnet_watch.low_addresses == 256);
	parse("[Nodewhy]\nSubnetWatch=yes\nSubnetLowPercent=10\nSubnetLowAddresses=64\n");
	ok(warnings == 0 && c.subnet_watch.on && c.subnet_watch.low_percent == 10 &&
	   c.subnet_watch.low_addresses == 64);
	parse("[Nodewhy]\nSubnetWatch=perhaps\nSubnetLowPercent=101\nSubnetLowAddresses=-1\n");
	ok(warnings == 3 && c.subnet_watch.on && c.subnet_watch.low_percent == 10);
	parse("[Probe "
	      "dns]\nIntervalSec=0\nIntervalSec=-1\nIntervalSec=1e9\nIntervalSec="
	      "999999999999999999999\n"
	      "IntervalSec=5min\nTimeoutSec=\n");
	ok(warnings == 6 && c.probes[at("dns")].every == 2500000);
	parse("[Nodewhy\nnonsense\n[Other]\nKey=1\n=\n");
	ok(warnings == 3);
	config_parse(&c, "x.conf", "[Nodewhy]\n\0Text\n[\n", 18, on_warning, NULL);
	ok(strstr(last, "x.conf:3") != NULL);
	parse("[Probe imds]\n\033[31mEvil=1\n");
	ok(warnings == 1 && !strchr(last, '\033')); /* a warning is shown on terminals */
	return done();
}
