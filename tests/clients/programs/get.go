// Gets a URL with Go's own client, with no option but what its environment says.
package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
)

func main() {
	answer, err := http.Get(os.Args[1])
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	body, _ := io.ReadAll(answer.Body)
	fmt.Println(answer.StatusCode, string(body))
	if answer.StatusCode != 200 {
		os.Exit(1)
	}
}
