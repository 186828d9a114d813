-- Where a reader begins: the position after which it is given everything, found once (EX5, EX9).
local start_position = {}

-- `@earliest`, `@latest`, `=POSITION` (from it on), `>POSITION` (after it) or `tMS` (from that time on). Gives nil for what
-- lies in the future, and 1 or 0: has the retention taken anything that would have been given (EX7).
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
