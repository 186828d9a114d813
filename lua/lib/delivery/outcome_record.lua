-- The outcome of an item in one text: `state jid-length item-length reason-length jid item reason result`. The JID is of the publisher that
-- asked for it; `@` before it, where no JID
-- has one: that one looks for the outcome and is not told.
local outcome_record = {LOOKS = '@'}

function outcome_record.write(state, jid, item, reason, result)
  return string.format('%s %d %d %d ', state, #jid, #item, #reason) .. jid .. ' ' .. item .. ' ' .. reason .. ' ' .. result
end

-- Returns the JID.
function outcome_record.jid(line)
  local length, at = string.match(line, '^%S+ (%d+) %d+ %d+ @?()')
  local marked = string.sub(line, at - 1, at - 1) == outcome_record.LOOKS and 1 or 0
  return string.sub(line, at, at + length - 1 - marked)
end
