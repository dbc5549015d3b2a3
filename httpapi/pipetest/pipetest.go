// Package pipetest connects a server and its only client in memory, so that both
// can live in a bubble of testing/synctest.
package pipetest

import (
	"net"
	"sync"
)

// Listen returns a listener that accepts one connection, and the client's end
// of that.
func Listen() (net.Listener, net.Conn) {
	client, served := net.Pipe()
	conns := make(chan net.Conn, 1)
	conns <- served
	return listener{conns, sync.OnceFunc(func() { close(conns) })}, client
}

type listener struct {
	conns chan net.Conn
	close func()
}

func (l listener) Accept() (net.Conn, error) {
	if c, ok := <-l.conns; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}

func (l listener) Close() error {
	l.close()
	return nil
}

func (listener) Addr() net.Addr { return new(net.TCPAddr) }
