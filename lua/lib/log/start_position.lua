-- Finds where a reader starts: the position after which it gets every entry (EX5, EX9).
local start_position = {}

-- Accepts `@earliest`, `@latest`, `=POSITION` (from it on), `>POSITION` (after it) or `tMS` (from that time on). Returns nil for a start
-- in the future; and 1 if retention has removed entries after the start, else 0 (EX7).
function start_position.resolve(text)
  local kind, rest = string.sub(text, 1, 1), string.sub(text, 2)
  if text == '@earliest' then return '0-0', 0 end
  if text == '@latest' then return call.partition_tail, 0 end
  if kind == 't' then
    if tonumber(rest) > call.partition_now then return nil end
    rest = rest .. '-0'
    if positions.after(rest, call.partition_tail) then return call.partition_tail, 0 end
  elseif positions.after(rest, call.partition_tail) then
    return nil
  end
  local position = kind == '>' and rest or positions.before(rest)
  return position, positions.after(call.partition_lost, position) and 1 or 0
end
