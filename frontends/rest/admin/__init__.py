"""Operations of administrators and owners beyond messages: requests, handlers, views."""
