// Package fault names the points at which a test may kill, stop or fail the
// program. Without the build tag "faults" every point is an empty function that
// the compiler removes, and nothing reads the environment.
//
// Labels: r1 to r9 are the steps of recording, c1 to c7 those of a correction,
// d1 to d10 those of a delivery; docs/testing.md lists what each stands for. Any
// other label of lower-case letters, digits, dots and underscores is free to
// use.
//
// With the tag, on Unix systems, three variables steer it:
//
//	FENCEPOST_FAULTS       rules: label=action[@trigger], separated by ";"
//	FENCEPOST_FAULTS_SEED  seed of the probabilities; random when absent, and
//	                       then printed with each firing
//	FENCEPOST_FAULTS_LOG   file to which each firing is appended before it acts
//
// Actions:
//
//	kill          SIGKILL to this process
//	stop(d)       SIGSTOP to this process, SIGCONT after d
//	panic         a panic of the goroutine that reached the point
//	error(class)  Point returns an error of that class: a tag of plugins/sdk,
//	              "canceled" or "deadline"; error alone means unavailable
//	sleep(d)      waits d, or until the context ends
//	block(file)   waits until the file exists, or until the context ends
//
// Triggers: @pX fires with probability X, @nK only the K-th time, @everyK each
// K-th time; none fires always. Two rules for one label both count and both may
// fire, in the order written.
//
// A process that is restarted with the same seed draws the same sequence again.
// A harness that restarts what it kills therefore gives each start its own
// seed, or leaves the seed out.
package fault
