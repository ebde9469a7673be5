package main

import (
	"fmt"
	"strings"
)

// methods writes the numbers, their names, and what an adapter must implement
// for each.
func (c *contract) methods(n *numbers) string {
	var b strings.Builder
	b.WriteString("\n// The operations. Their numbers never change and are never used again.\nconst (\n")
	for _, i := range c.interfaces {
		fmt.Fprintf(&b, "\n// Of [storage.%s].\n", i.Name)
		for _, op := range i.Operations {
			fmt.Fprintf(&b, "Method%s wirev1.Method = %d\n", op.Name, n.operations[op.Name])
		}
	}
	b.WriteString(")\n\n// operations lists every method by its number.\nvar operations = map[wirev1.Method]Operation{\n" +
		"MethodDescribe: {\"describe\", \"Adapter\"},\nMethodOpen: {\"open\", \"Adapter\"},\n" +
		"MethodPing: {\"ping\", \"Adapter\"},\nMethodClose: {\"close\", \"Adapter\"},\n")
	for _, i := range c.interfaces {
		for _, op := range i.Operations {
			fmt.Fprintf(&b, "Method%s: {%q, %q},\n", op.Name, snake(op.Name), i.Name)
		}
	}
	b.WriteString("}\n\n// Implemented returns the numbers of the operations that an adapter has, in order.\n")
	b.WriteString("func Implemented(a storage.Adapter) []int64 {\nvar list []int64\n")
	for _, i := range c.interfaces {
		fmt.Fprintf(&b, "if _, ok := storage.As[storage.%s](a); ok {\nlist = append(list, ", i.Name)
		b.WriteString(join(i.Operations, func(op *operation) string { return "int64(Method" + op.Name + ")" }) + ")\n}\n")
	}
	b.WriteString("slices.Sort(list)\nreturn list\n}\n")
	return b.String()
}

// sides names the functions and types of an operation's two messages.
type sides struct{ in, encodeIn, decodeIn, out, encodeOut, decodeOut string }

func (c *contract) sides(op *operation) sides {
	s := sides{
		in: "struct{}", encodeIn: "storagev1.EncodeNothing", decodeIn: "storagev1.DecodeNothing",
		out: "struct{}", encodeOut: "storagev1.EncodeNothing", decodeOut: "storagev1.DecodeNothing",
	}
	if m := op.Request; m != nil {
		name := m.Name + c.suffix(m, "AsRequest")
		s.in, s.encodeIn, s.decodeIn = qualified(m), "storagev1.Encode"+name, "storagev1.Decode"+name
	}
	if m := op.Answer; m != nil {
		name := m.Name + c.suffix(m, "AsAnswer")
		s.out, s.encodeOut, s.decodeOut = qualified(m), "storagev1.Encode"+name, "storagev1.Decode"+name
	}
	return s
}

// suffix tells apart the two ways of a message that is a request of one
// operation and an answer of another.
func (c *contract) suffix(m *message, suffix string) string {
	var asked, answers bool
	for _, i := range c.interfaces {
		for _, op := range i.Operations {
			asked = asked || op.Request == m
			answers = answers || op.Answer == m
		}
	}
	if asked && answers {
		return suffix
	}
	return ""
}

func qualified(m *message) string {
	if m.Made {
		return "storagev1." + m.Name
	}
	return m.Go
}

// dispatcher writes the side of the plugin.
func (c *contract) dispatcher() string {
	var b strings.Builder
	b.WriteString("\n// operation performs one operation of the adapter.\n")
	b.WriteString("func operation(ctx context.Context, a storage.Adapter, method wirev1.Method, request []byte) ([]byte, error) {\nswitch method { //nolint:exhaustive // the others are no operations\n")
	for _, i := range c.interfaces {
		for _, op := range i.Operations {
			s := c.sides(op)
			fmt.Fprintf(&b, "case storagev1.Method%s:\nreturn perform(a, request, %s, %s, func(a storage.%s, in %s) (%s, error) {\n",
				op.Name, s.decodeIn, s.encodeOut, op.Interface, s.in, s.out)
			call := "a." + op.Name + "(ctx" + c.arguments(op) + ")"
			switch {
			case op.Answer == nil:
				fmt.Fprintf(&b, "return struct{}{}, %s\n", call)
			case op.Partial:
				fmt.Fprintf(&b, "out, err := %s\nproblem, err := beside(len(out), err)\nreturn %s{Result: out, Problem: problem}, err\n", call, s.out)
			case op.WrappedAnswer:
				fmt.Fprintf(&b, "out, err := %s\nreturn %s{Result: out}, err\n", call, s.out)
			default:
				fmt.Fprintf(&b, "return %s\n", call)
			}
			b.WriteString("})\n")
		}
	}
	b.WriteString("}\nreturn nil, unknown(method)\n}\n")
	return b.String()
}

func (c *contract) arguments(op *operation) string {
	if op.Request != nil && !op.WrappedRequest {
		return ", in"
	}
	var b strings.Builder
	for _, p := range op.Params {
		b.WriteString(", in." + upper(p.Name))
	}
	return b.String()
}

// remote writes the side of the host.
func (c *contract) remote() string {
	var b strings.Builder
	for _, i := range c.interfaces {
		for _, op := range i.Operations {
			c.remoteOperation(&b, i, op)
		}
	}
	return b.String()
}

func (c *contract) remoteOperation(b *strings.Builder, i *iface, op *operation) {
	s := c.sides(op)
	var params strings.Builder
	for _, p := range op.Params {
		params.WriteString(", " + p.Name + " " + p.Type)
	}
	result := "error"
	if op.Answer != nil {
		result = "(" + op.Result + ", error)"
	}
	fmt.Fprintf(b, "\n// %s implements [storage.%s].\nfunc (a *Adapter) %s(ctx context.Context%s) %s {\n", op.Name, i.Name, op.Name, params.String(), result)
	in := "struct{}{}"
	switch {
	case op.Request != nil && !op.WrappedRequest:
		in = op.Params[0].Name
	case op.Request != nil:
		in = s.in + "{" + join(op.Params, func(p param) string { return upper(p.Name) + ": " + p.Name }) + "}"
	}
	check := "nil"
	if op.Answer != nil {
		check = "check" + op.Name
	}
	call := fmt.Sprintf("ask(ctx, a, %s, exchange[%s, %s]{storagev1.Method%s, %s, %s, %s})", in, s.in, s.out, op.Name, s.encodeIn, s.decodeOut, check)
	switch {
	case op.Answer == nil:
		fmt.Fprintf(b, "_, err := %s\nreturn err\n", call)
	case op.Partial:
		fmt.Fprintf(b, "out, err := %s\nif err == nil {\nerr = a.beside(out.Problem)\n}\nreturn out.Result, err\n", call)
	case op.WrappedAnswer:
		fmt.Fprintf(b, "out, err := %s\nreturn out.Result, err\n", call)
	default:
		fmt.Fprintf(b, "return %s\n", call)
	}
	b.WriteString("}\n")
}

// implements writes which operations make up which interface.
func (c *contract) implements() string {
	var b strings.Builder
	b.WriteString("\n// interfaces lists the operations of each interface of the contract.\nvar interfaces = map[string][]wirev1.Method{\n")
	for _, i := range c.interfaces {
		fmt.Fprintf(&b, "%q: {%s},\n", i.Name, join(i.Operations, func(op *operation) string { return "storagev1.Method" + op.Name }))
	}
	b.WriteString("}\n\nvar (\n")
	for _, i := range c.interfaces {
		fmt.Fprintf(&b, "_ storage.%s = (*Adapter)(nil)\n", i.Name)
	}
	b.WriteString(")\n")
	return b.String()
}
