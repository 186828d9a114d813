-- The outcome of an item in one text: `state jid-length item-length reason-length jid item reason result`. The JID is of the publisher that
-- asked for it; `@` before it, where no JID
-- has one: that one looks for the outcome and is not told.
local outcome_record = {LOOKS = '@'}

function outcome_record.write(state, jid, item, reason, result)
  return string.format('%s %d %d %d ', state, #jid, #item, #reason) .. jid .. ' ' .. item .. ' ' .. reason .. ' ' .. result
end

-- Returns the JID without the mark.
function outcome_record.asker(jid)
  return string.sub(jid, 1, 1) == outcome_record.LOOKS and string.sub(jid, 2) or jid
end

-- Returns the JID of an outcome.
function outcome_record.jid(line)
  local length, at = string.match(line, '^%S+ (%d+) %d+ %d+ ()')
  return outcome_record.asker(string.sub(line, at, at + length - 1))
end
