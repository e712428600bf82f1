"""Windows of texts that hold answers, as transformers makes them."""


def windows_of(tokenizer, example, max_length, doc_stride, symbols=3):
  """Windows and answers as transformers' run_qa.py finds them.

  `symbols` are those of a row.
  """
  question = len(
    tokenizer(example.question, add_special_tokens=False).input_ids
  )
  room = max_length - question - symbols
  encoded = tokenizer(
    example.question,
    example.context,
    truncation='only_second',
    max_length=max_length,
    stride=room - min(room, doc_stride),  # what windows have in common
    return_overflowing_tokens=True,
    return_offsets_mapping=True,
  )
  for window, ids in enumerate(encoded['input_ids']):
    parts = encoded.sequence_ids(window)
    spans = [
      list(span) if part == 1 else [-1, -1]
      for span, part in zip(
        encoded['offset_mapping'][window], parts, strict=True
      )
    ]
    label = [0, 0]
    if example.answers:
      text, begin = example.answers[0]
      end = begin + len(text)
      first = parts.index(1)
      last = len(ids) - 1 - parts[::-1].index(1)
      if spans[first][0] <= begin and spans[last][1] >= end:
        while first < len(spans) and 0 <= spans[first][0] <= begin:
          first += 1
        while spans[last][1] >= end:
          last -= 1
        label = [first - 1, last + 1]
    yield ids, spans, label
