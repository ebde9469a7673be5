//go:build faults && unix

package faults

const pairVar = "FENCEPOST_FAULTS_PAIR"

func servePair() int { return 0 }
